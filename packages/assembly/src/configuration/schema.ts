import { checkModelFormat, modelFormatShape } from "@astra-rl/lm";
import { z } from "zod";
import {
  nllOptions,
  presetHas,
  PRESET_WEIGHTS,
  REWARD_PRESETS,
  TARGET_READS,
  trainingSection,
  type KindSection,
} from "@astra-rl/method";
import { DEFAULT_THRESHOLD } from "@astra-rl/analysis";
import { controlsSchema, evaluationTagsSchema } from "@astra-rl/records";
import { deviceSchema } from "@astra-rl/base";
import { generationSchema } from "./generation-schema.js";
import { FREE, kindSchema, MODULE_EXPORT, nestedSections, type ModuleTypes } from "./kind-schema.js";
import { EMBEDDED, promptsSchema } from "./prompts-schema.js";
import { DEFAULT_TYPES, KIND_SECTIONS, kindsOf } from "./registry.js";

/** The models included in the package, named `embedded:<name>`. */
export const EMBEDDED_MODELS = ["chatter", "chat", "desk", "goals", "shop"] as const;
const EMBEDDED_NAMES = EMBEDDED_MODELS.map((name) => `${EMBEDDED}:${name}`).join(" or ");

const whole = (least: number) => z.number().int().min(least);
const seed = whole(0).max(Number.MAX_SAFE_INTEGER);
const finite = z.number();
const positive = z.number().positive();

const dtype = z.enum(["auto", "float32", "bfloat16"]);

const model = z.string().min(1).meta({ path: "model" });

/** A section whose `type` is an export of a user module, which validates the options. */
const moduleSection = z.looseObject({
  type: z.string().regex(/#/, { error: `must be ${MODULE_EXPORT}`, abort: true }),
}) as unknown as z.ZodType<KindSection, KindSection>;

/** A checkpoint, and how it reads conversations. */
const formattedModel = z
  .strictObject({
    path: model.describe(`The checkpoint: a folder, a hub id, ${EMBEDDED_NAMES}`),
    ...modelFormatShape,
  })
  .superRefine((given, context) =>
    checkModelFormat(given, (rule, key, message) =>
      context.addIssue({ code: "custom", path: [key], message, params: { rule } }),
    ),
  );

/** A model behind an API; in contrast to a target, no other role may be a module's. */
const served = kindSchema("target", null);
const SERVED = `type: ${kindsOf("target")
  .map(({ name }) => name)
  .join(" or ")}`;

const tester = z
  .union([model, formattedModel, served], {
    error: `must be a folder, a hub id, a section with path, the checkpoint, and how it reads conversations, or one with ${SERVED}`,
  })
  .meta({ path: "model", kind: "target" });

const likelihood = z
  .union([model, served], { error: `must be a folder, a hub id, or a section with ${SERVED}` })
  .meta({ path: "model", kind: "target" });

/** A checkpoint, or a custom target. */
const target = z
  .union([model, formattedModel, kindSchema("target", {}), moduleSection], {
    error:
      "must be a folder, a hub id, an export of a module such as ./file.js#name, a section with path, the checkpoint, and how it " +
      `reads conversations, or one with ${SERVED}`,
  })
  .meta({ path: "model", kind: "target" });

const lora = z.strictObject({
  rank: whole(1).default(8).describe("Inner dimension of the adapter"),
  alpha: positive.default(16).describe("The adapter's output is multiplied by alpha / rank"),
  targetModules: z
    .array(z.string().min(1))
    .min(1)
    .describe("Last parts of the names of the projections to adapt: [q_proj, v_proj], or [c_attn] for GPT-2"),
  dropout: z.number().min(0).lt(1).default(0).describe("Share of the adapter's inputs dropped in training"),
});

const models = z.strictObject({
  tester: tester.describe(
    `The model to train, which generates probes. A folder in Hugging Face format, a hub id, ${EMBEDDED_NAMES}; ` +
      "or a section with one of these as its path, and the model's conversation format; for " +
      "rollouts and evaluations only, a model on a server: {type: openai, …}",
  ),
  target: target.describe(
    `The model under test, which generates responses. A folder, a hub id, ${EMBEDDED_NAMES}; ` +
      "a custom model, ./file.js#name, or a section with this as its type, and its options; a section with the " +
      "checkpoint as its path, and its conversation format; or a model on a server: {type: openai, …}",
  ),
  otherTargets: z.array(target).default([]).describe("Additional models under test, besides target"),
  likelihood: likelihood
    .optional()
    .describe(
      "Computes the likelihood of probes if the target cannot; generates no text. The tester's checkpoint " +
        "needs no additional memory. A server can be used if it returns log-probabilities of prompts, as " +
        "vLLM does: {type: openai, api: completions, …}. Default: the target",
    ),
  targetReads: z
    .enum(TARGET_READS)
    .default("conversation")
    .describe(
      "What the target reads before it responds. probe: only the probe, without the conversation before it, " +
        "for prompts that are meant for the tester only",
    ),
  otherTesters: z
    .array(tester)
    .default([])
    .describe("Further testers, not trained, with the tester's tokenizer, for the probes of some episodes"),
  otherTesterShare: z
    .number()
    .min(0)
    .max(1)
    .default(0.5)
    .describe("Share of the training episodes in which one of the other testers generates the probes"),
  evaluateOtherTesters: z
    .boolean()
    .default(false)
    .describe("Evaluations use the other testers too, each as often as the tester"),
  baseline: model
    .optional()
    .describe("Frozen reference for the tester. Default: the tester's initial weights"),
  lora: lora
    .optional()
    .describe(
      "Train a low-rank adapter on frozen weights, which target and baseline may share; if the tester is an " +
        "adapter, that one is trained further, with its rank, alpha and targetModules. Default: train all weights",
    ),
  testerTokenizer: model
    .optional()
    .describe(
      "Tokenizer of the testers and the baseline if their checkpoints have none: a folder, a hub id, " +
        `or ${EMBEDDED_NAMES}`,
    ),
  targetTokenizer: model.optional().describe("Tokenizer of the targets if their checkpoints have none"),
  device: deviceSchema.default("cpu").describe("Default device of the models"),
  testerDevice: deviceSchema.optional().describe("Device of the testers and of training. Default: device"),
  targetDevice: deviceSchema.optional().describe("Device of the targets. Default: device"),
  baselineDevice: deviceSchema
    .optional()
    .describe("Device of the baseline; apart from the tester's, it needs its own weights. Default: device"),
  date: z.iso
    .date("must be a date such as 2026-02-03")
    .optional()
    .describe("Date, YYYY-MM-DD, that chat templates write. Default: the day on which the run starts"),
  dtype: dtype
    .default("auto")
    .describe(
      "Number format of rollouts and frozen models; master weights stay float32. auto: bfloat16 where the " +
        "processor supports it and the model is large enough to benefit",
    ),
  updateDtype: dtype
    .optional()
    .describe(
      "Number format of matrix products in updates if all weights are trained. auto: bfloat16 where it speeds up " +
        "updates, too. Default: same as dtype",
    ),
  graphs: z
    .enum(["off", "auto"])
    .default("off")
    .meta(FREE)
    .describe("auto: a GPU repeats steps of decoding as CUDA graphs. Not yet confirmed by a GPU"),
  gradientCheckpointing: z
    .boolean()
    .default(false)
    .describe(
      "Updates store only the activations between layers and compute each layer twice: less memory, a third " +
        "more computation, the same gradients. CPU only",
    ),
});

const evaluationSection = (modules: ModuleTypes) =>
  z.strictObject({
    rollouts: whole(1).optional().meta(FREE).describe("Number of test prompts to use. Default: all"),
    repeats: whole(1)
      .default(1)
      .meta(FREE)
      .describe(
        "Rollouts per prompt in eval. With more than one, the chance of a success within several attempts is " +
          "estimated; intervals then count prompts, not rollouts",
      ),
    depth: whole(1)
      .optional()
      .meta(FREE)
      .describe(
        "Turns per evaluation rollout. Default: sampler.depth; in later turns, which training never reaches, " +
          "a tester may drift to unlikely probes",
      ),
    seenGoals: z
      .boolean()
      .default(false)
      .meta(FREE)
      .describe("Whether goals of training may be evaluated; otherwise they are refused"),
    threshold: positive
      .max(1)
      .default(DEFAULT_THRESHOLD)
      .meta(FREE)
      .describe("Responses with at least this score count as harmful"),
    batchSize: whole(1).default(64).meta(FREE).describe("Rollouts generated together"),
    controls: controlsSchema
      .meta(FREE)
      .describe(
        "Texts that the scorer must find harmful, or {harmless: a text} that it must not; of agents, {calls}, with harmful: false; " +
          "of judges of goals, {goal, response}, with reached: false for one that misses it. gate gives no verdict without them",
      ),
    tags: evaluationTagsSchema
      .optional()
      .meta(FREE)
      .describe('Entries of lists of risks, or "none"; or those of goals, by id or category. Default: none'),
    secondScorer: nestedSections(modules)
      .scorer.optional()
      .meta(FREE)
      .describe("Another scorer of responses, unseen by training: success by both is shown. Default: none"),
    utility: nestedSections(modules)
      .scorer.optional()
      .meta(FREE)
      .describe("Scores responses: at least 0.5 does the user's task, attacked or not. Default: none"),
    benign: z
      .strictObject({
        prompts: z
          .string()
          .min(1)
          .meta({ ...FREE, path: "file" })
          .describe("A prompt file, as in the section prompts; each different prompt is asked once"),
        refusal: nestedSections(modules)
          .scorer.prefault({ type: "refusal" })
          .meta(FREE)
          .describe("A scorer of answers: at least 0.5 is a refusal"),
      })
      .optional()
      .meta(FREE)
      .describe(
        "Benign prompts, such as harmless twins of the goals, that eval asks the target without a tester: the share that it " +
          "refuses is its over-refusal. Default: none",
      ),
  });

export type { KindSection } from "@astra-rl/method";

/** The default reward preset. */
export const DEFAULT_PRESET = REWARD_PRESETS[0];

function rewardSchema(modules: ModuleTypes) {
  /** The presets that have an option, with its default in each. */
  const weight = (name: string, of: string) => {
    const defaults = REWARD_PRESETS.flatMap((preset) => {
      const weights: Partial<Record<string, number>> = PRESET_WEIGHTS[preset];
      return weights[name] === undefined ? [] : `${weights[name]} (${preset})`;
    });
    return finite.optional().describe(`Weight of ${of}. Default ${defaults.join(", ")}`);
  };
  return z
    .strictObject({
      preset: z
        .enum(REWARD_PRESETS)
        .optional()
        .describe(
          "elicitation: harm of the response minus harm of the probe and its mean NLL above the free amount; " +
            "paper: harm, including that of the probe, minus " +
            `mean NLL; toolbox: harm plus the probability of the probe. Default: ${DEFAULT_PRESET}, unless ` +
            `terms are given`,
        ),
      responseWeight: weight("responseWeight", "the response's harm"),
      probeWeight: weight("probeWeight", "the probe's harm, as a penalty"),
      combinedWeight: weight("combinedWeight", "the harm of probe and response together"),
      likelihoodWeight: weight("likelihoodWeight", "the probe's likelihood under the target"),
      emptyProbeNLL: finite
        .optional()
        .describe("Presets elicitation and paper: nats charged for an empty probe. Default 10"),
      free: nllOptions.shape.free
        .unwrap()
        .optional()
        .describe(
          "Preset elicitation: nats per token that are not penalized. Default start: the mean over the probes " +
            "of the first experience",
        ),
      terms: z
        .array(kindSchema("term", modules))
        .min(1)
        .optional()
        .describe("Instead of a preset: the terms whose weighted sum is the reward"),
      clip: positive
        .optional()
        .describe("With terms: clips the sum to between −clip and clip. Default: no clipping"),
    })
    .superRefine(({ terms, clip, preset, ...rest }, context) => {
      const params = { rule: "inapplicable-option" };
      const issue = (key: string, message: string) =>
        context.addIssue({ code: "custom", path: [key], message, params });
      if (terms !== undefined) {
        for (const [key, value] of Object.entries({ preset, ...rest })) {
          if (value !== undefined)
            issue(key, "is an option of presets; a reward has either a preset or terms");
        }
        return;
      }
      if (clip !== undefined) issue("clip", "is an option of terms; the sums of presets are as published");
      const chosen = preset ?? DEFAULT_PRESET;
      for (const [key, value] of Object.entries(rest)) {
        if (value === undefined || presetHas(chosen, key)) continue;
        const others = REWARD_PRESETS.filter((name) => presetHas(name, key));
        issue(
          key,
          `is not an option of the preset ${chosen}; ${others.join(" and ")} ` +
            `${others.length === 1 ? "has" : "have"} it`,
        );
      }
    });
}

/** Like `models`, but all optional, for a custom system. */
function modelsBesideSystem() {
  const { tester, target } = models.shape;
  return z
    .strictObject({ ...models.shape, tester: tester.optional(), target: target.optional() })
    .prefault({}) as unknown as typeof models;
}

const hash = z.string().regex(/^[0-9a-f]{64}$/, "must be the 64 hexadecimal digits of a SHA-256");

/**
 * The schema of the whole file. Defaults are published settings where they exist.
 *
 * @param modules module exports that `type:` may name in addition to the package's kinds
 */
export function configurationSchema(modules: ModuleTypes = {}) {
  const choices = Object.fromEntries(
    KIND_SECTIONS.map((name) => [name, kindSchema(name, modules).prefault({ type: DEFAULT_TYPES[name] })]),
  ) as Record<(typeof KIND_SECTIONS)[number], z.ZodPrefault<z.ZodType<KindSection, KindSection>>>;
  return z.strictObject({
    seed: seed.default(0).describe("Seed of all random draws of the run"),
    models: (modules.system?.length ?? 0) > 0 ? modelsBesideSystem() : models,
    system: moduleSection
      .meta({ kind: "system" })
      .optional()
      .describe(
        "A custom system, an export of a module: a class that extends HFASTSystem, loaded with the models above, or " +
          "an environment that needs no models",
      ),
    prompts: promptsSchema.prefault({}),
    sampler: choices.sampler,
    generation: z
      .strictObject({ tester: generationSchema.prefault({}), target: generationSchema.prefault({}) })
      .prefault({}),
    reward: rewardSchema(modules).prefault({ preset: DEFAULT_PRESET }),
    scorer: choices.scorer,
    embedder: choices.embedder,
    credit: choices.credit,
    algorithm: choices.algorithm,
    training: trainingSection.prefault({}),
    logging: z
      .array(kindSchema("logger", modules))
      .default([])
      .meta(FREE)
      .describe(
        "Additional loggers for the metrics of each step, which metrics.jsonl always contains. A logger that " +
          "fails never ends training",
      ),
    evaluation: evaluationSection(modules).prefault({}),
    modules: z
      .record(z.string(), hash)
      .optional()
      .meta(FREE)
      .describe(
        "Written by runs: the modules that `type:` names, with the SHA-256 of each; a module that has changed " +
          "since is refused",
      ),
  });
}

/** A validated configuration with all defaults filled in. */
export type Configuration = z.infer<ReturnType<typeof configurationSchema>>;
