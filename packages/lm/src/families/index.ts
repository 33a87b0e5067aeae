// One file a model family. Must not know: files, tokenizers, generation, or any other family.
import { describeValue, UsageError } from "@astra-rl/torch";
import type { JsonFields } from "../json-fields.js";
import type { CausalFamily } from "./family.js";
import { gpt2 } from "./gpt2.js";
import { llama } from "./llama.js";
import { mistral } from "./mistral.js";
import { qwen2, qwen3 } from "./qwen.js";

const families: readonly CausalFamily[] = [gpt2, llama, mistral, qwen2, qwen3];

/** The family that a config.json asks for. Throws UsageError, listing those supported, where there is none. */
export function familyOf(fields: JsonFields): CausalFamily {
  const { architectures, model_type: modelType } = fields.values;
  const named = Array.isArray(architectures) ? architectures : [];
  const family = families.find((candidate) =>
    named.length > 0
      ? named.some((name) => candidate.architectures.includes(name as string))
      : candidate.modelType === modelType,
  );
  if (family !== undefined) return family;
  const supported = families.flatMap((candidate) => candidate.architectures).join(", ");
  const given = named.length > 0 ? describeValue(named) : `model_type ${describeValue(modelType)}`;
  throw new UsageError(`${fields.where}: the architecture must be one of ${supported}, but it is ${given}`);
}
