import { UsageError } from "@astra-rl/base";
import { isObject, type JsonFields } from "../json-fields.js";

export interface LoRAConfiguration {
  /** Inner dimension r. */
  rank: number;
  /** The update is scaled by alpha / rank. */
  alpha: number;
  /** Name suffixes of the projections to adapt, for example ["q_proj", "v_proj"] or ["c_attn"]. */
  targetModules: readonly string[];
  /** Dropout probability of A's input in training. Default 0. */
  dropout?: number;
}

/** Keys of adapter_config.json that do not change the results of a trained adapter, or only together with others. */
const WITHOUT_EFFECT: readonly string[] = [
  "task_type",
  "auto_mapping",
  "peft_version",
  "base_model_name_or_path",
  "revision",
  "inference_mode",
  "fan_in_fan_out", // the base decides
  "layers_pattern",
  "megatron_core",
  "qalora_group_size",
  "loftq_config",
  "eva_config",
  "corda_config",
  "lora_ga_config",
];

/** Initializations that leave the base's weights as they are, so that base and adapter are the whole model. */
const INITIALIZATIONS: readonly unknown[] = [true, false, "gaussian", "orthogonal", "eva"];

/** Reads PEFT's configuration. An unknown setting that changes an adapter's results is refused. */
export function parsePeftConfiguration(fields: JsonFields): Required<LoRAConfiguration> {
  const kind = fields.string("peft_type");
  if (kind !== "LORA")
    throw fields.error("unsupported-adapter", "peft_type", `"LORA", the only kind of adapter supported`);
  const initialization = fields.values["init_lora_weights"] ?? true;
  if (!INITIALIZATIONS.includes(initialization)) {
    throw fields.error(
      "unknown-choice",
      "init_lora_weights",
      `one of ${INITIALIZATIONS.map((each) => JSON.stringify(each)).join(", ")}: others also change the base's weights; save ` +
        `the adapter as a plain one in Python (save_pretrained with path_initial_model_for_weight_conversion)`,
    );
  }
  const bias = fields.string("bias", { fallback: "none" });
  if (bias !== "none")
    throw fields.error("unsupported-option", "bias", `"none": trained biases are not supported`);
  const targets = fields.list("target_modules");
  if (!targets.every((target) => typeof target === "string"))
    throw fields.error("invalid-type", "target_modules", "a list of names");
  const dropoutValue = fields.values["lora_dropout"] ?? 0;
  if (typeof dropoutValue !== "number")
    throw fields.error("out-of-range", "lora_dropout", "a number from 0 to less than 1");
  const configuration = {
    rank: fields.integer("r"),
    alpha: fields.positive("lora_alpha"),
    // Without duplicates: a very long list would make comparing it with every projection too slow.
    targetModules: [...new Set(targets)],
    dropout: dropoutValue,
  };
  const read = [
    "peft_type",
    "init_lora_weights",
    "bias",
    "target_modules",
    "lora_dropout",
    "r",
    "lora_alpha",
  ];
  for (const [name, value] of Object.entries(fields.values)) {
    if (read.includes(name) || WITHOUT_EFFECT.includes(name) || isOff(value)) continue;
    throw fields.error(
      "unsupported-option",
      name,
      "left out, off or empty: adapters with this setting are not supported",
    );
  }
  return checkConfiguration(fields.where, configuration);
}

/** Whether a setting has the value of a plain adapter: all other settings of PEFT are off or empty by default. */
function isOff(value: unknown): boolean {
  if (value === null || value === undefined || value === false) return true;
  return (Array.isArray(value) || isObject(value)) && Object.keys(value).length === 0;
}

export function checkConfiguration(
  where: string,
  configuration: LoRAConfiguration,
): Required<LoRAConfiguration> {
  const { rank, alpha, targetModules, dropout: probability = 0 } = configuration;
  if (!Number.isSafeInteger(rank) || rank < 1)
    throw new UsageError("out-of-range", `${where}: rank must be an integer ≥ 1, got ${rank}`);
  if (!(alpha > 0 && Number.isFinite(alpha)))
    throw new UsageError("out-of-range", `${where}: alpha must be a number > 0, got ${alpha}`);
  if (!(probability >= 0 && probability < 1)) {
    throw new UsageError(
      "out-of-range",
      `${where}: dropout must be at least 0 and less than 1, got ${probability}`,
    );
  }
  if (targetModules.length === 0)
    throw new UsageError("empty", `${where}: targetModules must name at least one projection`);
  return { rank, alpha, targetModules: [...targetModules], dropout: probability };
}
