import { z } from "zod";
import { tagsSchema } from "./gate/index.js";
import { parserOf } from "./parse-record.js";

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

/** Identity of a loaded checkpoint. */
const modelIdentity = z.looseObject({
  /** Its name in the configuration: a folder, a model id, or `embedded:<name>`. */
  model: z.string(),
  /** SHA-256 of each file of the checkpoint, by name. */
  files: z.record(z.string(), sha256),
});

/** How local models read conversations: with the checkpoint's chat template, or as plain text. */
const formats = z.record(z.string(), z.enum(["chat", "plain"]));

/** Observed behavior of the server of a model, at the start. */
const server = z.looseObject({
  /** The name that it gives its model. */
  model: z.string().nullable(),
  /** The parameter that limits an answer, and whether answers keep to it; null where it counts no tokens. */
  limit: z.string(),
  limit_holds: z.boolean().nullable(),
  /** Parameters that it rejects, and that were not sent. */
  omitted: z.array(z.string()),
  /** Parameters that it accepts and that had no effect. */
  ignored: z.array(z.string()),
  /** The share of an answer's tokens with log-probabilities; of a prompt's for the likelihood. */
  logprobs: z.number(),
  /** Whether a seed repeats an answer; null if answers did not vary. */
  seed_repeats: z.boolean().nullable(),
});
const servers = z.record(z.string(), server);

/** A file that a configuration names. */
const fileIdentity = z.looseObject({
  /** The dotted key that names it, such as `prompts.train` or `scorer.file`. */
  key: z.string(),
  /** Absolute path; "embedded" for files of the package. */
  path: z.string(),
  /** Hash of the file's bytes; for embedded prompts, of their JSON array without white space. */
  sha256,
  /** Path of the copy in the run folder, relative to it; null if embedded or too large to copy. */
  copy: z.string().nullable(),
});

/** One process that worked on the run. */
const session = z.looseObject({
  /** Date and time in UTC, ISO 8601. */
  started: z.string(),
  /** The version of astra-rl. */
  astra_rl: z.string(),
  /** The git commit of the working directory, with "+changes" if files differ from it; null without git. */
  commit: z.string().nullable(),
  /** The command line. */
  command: z.array(z.string()),
  /** The working directory. */
  directory: z.string(),
  host: z.looseObject({
    name: z.string(),
    platform: z.string(),
    processor: z.string(),
    cores: z.int().positive(),
    node: z.string(),
  }),
  engine: z.looseObject({
    libtorch: z.string(),
    library: z.string(),
    blas: z.string(),
    isa: z.string(),
    /** Of each process. */
    threads: z.int().positive(),
    /** Processes that shared the run. */
    processes: z.int().positive(),
  }),
  /** The step after which the run was resumed; null for the first session. */
  resumed_after: z.int().nonnegative().nullable(),
  /** Why training ended before its last step; absent if it did not, or was killed. */
  stopped: z.object({ step: z.int().nonnegative(), reason: z.string() }).optional(),
});

export const runRecordSchema = z.looseObject({
  /** Seed of all randomness in the run. */
  seed: z.int().nonnegative(),
  models: z.record(z.string(), modelIdentity),
  /** How local models read conversations, by their names. */
  formats,
  /** Servers, by the names of their models; absent without any. */
  servers: servers.optional(),
  files: z.array(fileIdentity),
  /** In chronological order. */
  sessions: z.array(session).min(1),
  version: z.int().positive(),
});

export type ServerRecord = z.infer<typeof server>;
export type ModelIdentity = z.infer<typeof modelIdentity>;
export type FileIdentity = z.infer<typeof fileIdentity>;
export type RunSession = z.infer<typeof session>;
export type RunRecord = z.infer<typeof runRecordSchema>;

/** How a search found the probes that its evaluation says. */
export const searchSchema = z.looseObject({
  /** Answers of the target that the search took, failed ones included; those of the evaluation are not among them. */
  queries: z.int().nonnegative(),
  /** The most that it was allowed. */
  budget: z.int().positive(),
  /** Of its answers, those that failed or could not be scored. */
  n_failed: z.int().nonnegative(),
  /** Candidates and the openers that each was tried on; the first round is the sample of the untrained tester. */
  rounds: z.array(z.looseObject({ candidates: z.int().nonnegative(), openers: z.int().positive() })),
  /** Mean −log P_target of a token of the sampled probes, in nats; null where it is not measured. */
  sample_nll: z.number().nullable(),
  /** Most nats a token of a probe; null without a bound. */
  max_nll: z.number().nullable(),
  /** The probes, best first. */
  probes: z
    .array(
      z.looseObject({
        probe: z.string(),
        /** What the search saw of it, in conversations: too high, because the probe was chosen by it. */
        biased_estimate: z.looseObject({
          n_tried: z.int().positive(),
          n_successes: z.int().nonnegative(),
          rate: z.number(),
        }),
        /** Mean −log P_target of its tokens over all turns in which it was tried, in nats. */
        nll: z.number().nullable(),
      }),
    )
    .min(1),
});

/** What an evaluation measured, so that its metrics can be interpreted without the run. */
export const measuredSchema = z.looseObject({
  tester: modelIdentity,
  /** Where the tester is a list of probes that a search found; absent otherwise. */
  search: searchSchema.optional(),
  target: modelIdentity,
  /** The model that says how likely probes are, where the target does not; absent where it does. */
  likelihood: modelIdentity.optional(),
  /** The reward section. */
  reward: z.looseObject({}),
  /** Further testers and targets, by their names in graphs; absent if there are none. */
  others: z.record(z.string(), modelIdentity).optional(),
  /** Entries of published lists of risks that it is about, where its goals have no other ones; absent where none is given. */
  tags: tagsSchema.optional(),
  /** The scorer section of the configuration, the SHA-256 of its files, and its checkpoints. */
  scorer: z.looseObject({ type: z.string(), models: z.array(modelIdentity).optional() }),
  /** The section of the second scorer; absent without one. */
  second_scorer: z.looseObject({ type: z.string() }).optional(),
  /** The benign prompts, and the section of the scorer of refusals; absent without them. */
  benign: z
    .looseObject({
      source: z.string(),
      sha256,
      count: z.int().nonnegative(),
      refusal: z.looseObject({ type: z.string() }),
    })
    .optional(),
  prompts: z.looseObject({
    /** A file's absolute path, or "embedded". */
    source: z.string(),
    split: z.string(),
    /** Hash of the texts as a JSON array without white space. */
    sha256,
    /** Number of prompts; an evaluation may use only the first ones. */
    count: z.int().nonnegative(),
  }),
  /** Decoding options of the two models. */
  generation: z.looseObject({ tester: z.looseObject({}), target: z.looseObject({}) }),
  /** How local models read conversations, by their names. */
  formats,
  /** Servers, by the names of their models; absent without any. */
  servers: servers.optional(),
  /** The date that chat templates wrote; absent if none did. */
  date: z.string().optional(),
  /** Sampler options; the depth is the evaluation's. */
  sampler: z.looseObject({ type: z.string() }),
  /** Compute dtypes of the models. */
  dtype: z.string(),
  seed: z.int().nonnegative(),
  astra_rl: z.string(),
});
export type SearchRecord = z.infer<typeof searchSchema>;
export type MeasuredRecord = z.infer<typeof measuredSchema>;

/** @throws UsageError if the text or value is not a run record of a known version */
export const parseRunRecord = parserOf(runRecordSchema, "run.json");

/** The content of `run.json`: indented, with a trailing newline. */
export function stringifyRunRecord(record: RunRecord): string {
  return `${JSON.stringify(runRecordSchema.parse(record), null, 2)}\n`;
}
