// One file per model family. Must not know: files, tokenizers, generation, or any other family.
import { describeValue, UsageError } from "@astra-rl/base";
import type { JsonFields } from "../json-fields.js";
import { bertClassifiers, bertEncoders } from "./bert.js";
import type { CausalFamily } from "./decoder-family.js";
import { gemma3, gemma3Multimodal } from "./gemma3.js";
import { glm4 } from "./glm4.js";
import { gpt2 } from "./gpt2.js";
import { gptNeoX } from "./gpt-neox.js";
import { granite } from "./granite.js";
import { llama } from "./llama.js";
import { ministral3, mistral, mistral3Multimodal } from "./mistral.js";
import { olmo2 } from "./olmo2.js";
import { olmo3 } from "./olmo3.js";
import { phi3 } from "./phi3.js";
import { qwen2, qwen3 } from "./qwen.js";
import { seedOss } from "./seed-oss.js";
import { smollm3 } from "./smollm3.js";

const families: readonly CausalFamily[] = [
  gpt2,
  llama,
  mistral,
  ministral3,
  mistral3Multimodal,
  qwen2,
  qwen3,
  gemma3,
  gemma3Multimodal,
  phi3,
  olmo2,
  olmo3,
  smollm3,
  granite,
  seedOss,
  glm4,
  gptNeoX,
];

/** The family for a config.json. Throws UsageError, listing the supported ones, if there is none. */
export const familyOf = (fields: JsonFields): CausalFamily => found(fields, families);

/** Like `familyOf`, for sequence classifiers. */
export const classifierFamilyOf = (fields: JsonFields) => found(fields, bertClassifiers);

/** Like `familyOf`, for encoders. */
export const encoderFamilyOf = (fields: JsonFields) => found(fields, bertEncoders);

function found<F extends Pick<CausalFamily, "architectures" | "modelType">>(
  fields: JsonFields,
  known: readonly F[],
): F {
  const asked = architecturesOf(fields);
  const family = known.find((candidate) =>
    asked.length > 0
      ? asked.some((name) => candidate.architectures.includes(name))
      : candidate.modelType === fields.values["model_type"],
  );
  if (family !== undefined) return family;
  throw unsupported(
    fields,
    known.flatMap((candidate) => candidate.architectures),
  );
}

function architecturesOf(fields: JsonFields): string[] {
  const { architectures } = fields.values;
  return Array.isArray(architectures)
    ? architectures.filter((name): name is string => typeof name === "string")
    : [];
}

function unsupported(fields: JsonFields, supported: readonly string[]): UsageError {
  const { architectures, model_type: modelType } = fields.values;
  const given =
    architecturesOf(fields).length > 0
      ? describeValue(architectures)
      : `model_type ${describeValue(modelType)}`;
  return new UsageError(
    "unsupported-architecture",
    `${fields.where}: the architecture must be one of ${supported.join(", ")}, but it is ${given}`,
  );
}
