import { z } from "zod";
import { parseRecord } from "./parse-record.js";

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

/** A checkpoint as it was read. */
const modelIdentity = z.looseObject({
  /** What the configuration calls it: a folder, a model id, or `embedded:<name>`. */
  model: z.string(),
  /** SHA-256 of each file of the checkpoint, by name. */
  files: z.record(z.string(), sha256),
});

/** A file that a configuration names. */
const fileIdentity = z.looseObject({
  /** The dotted key that names it, such as `prompts.train` or `scorer.file`. */
  key: z.string(),
  /** Absolute; "embedded" for what comes with the package. */
  path: z.string(),
  /** Of its bytes; of embedded prompts, of their JSON array without white space. */
  sha256,
  /** Where the run folder has a copy, relative to it; null for what is embedded, or too large to copy. */
  copy: z.string().nullable(),
});

/** One process that worked in the run folder. */
const session = z.looseObject({
  /** Date and time in UTC, ISO 8601. */
  started: z.string(),
  /** The version of astra-rl. */
  astra_rl: z.string(),
  /** The git commit of the folder in which the command ran, with "+changes" where files differ from it; null without git. */
  commit: z.string().nullable(),
  /** The command line, as it was given. */
  command: z.array(z.string()),
  /** The folder in which it ran. */
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
    threads: z.int().positive(),
  }),
  /** The step that a resumed run went on after; null for the session that began the run. */
  resumed_after: z.int().nonnegative().nullable(),
});

export const runRecordSchema = z.looseObject({
  /** Everything random in the run follows from it. */
  seed: z.int().nonnegative(),
  models: z.record(z.string(), modelIdentity),
  files: z.array(fileIdentity),
  /** In the order of time; the last is the newest. */
  sessions: z.array(session).min(1),
  version: z.int().positive(),
});

export type ModelIdentity = z.infer<typeof modelIdentity>;
export type FileIdentity = z.infer<typeof fileIdentity>;
export type RunSession = z.infer<typeof session>;
export type RunRecord = z.infer<typeof runRecordSchema>;

/** What an evaluation measured, so that its figures can be understood without the run. */
export const measuredSchema = z.looseObject({
  tester: modelIdentity,
  target: modelIdentity,
  /** Further testers and targets by their names in graphs; absent where there are none. */
  others: z.record(z.string(), modelIdentity).optional(),
  /** The scorer's section of the configuration, the SHA-256 of the files that it names, and the checkpoints it loads. */
  scorer: z.looseObject({ type: z.string(), models: z.array(modelIdentity).optional() }),
  prompts: z.looseObject({
    /** A file's absolute path, or "embedded". */
    source: z.string(),
    split: z.string(),
    /** Of the texts: a JSON array of them, without white space. */
    sha256,
    /** How many there are; an evaluation may use the first of them only. */
    count: z.int().nonnegative(),
  }),
  /** How the two models decode. */
  generation: z.looseObject({ tester: z.looseObject({}), target: z.looseObject({}) }),
  /** How the conversations were grown; its depth is the evaluation's. */
  sampler: z.looseObject({ type: z.string() }),
  /** The types that the models computed in. */
  dtype: z.string(),
  seed: z.int().nonnegative(),
  astra_rl: z.string(),
});
export type MeasuredRecord = z.infer<typeof measuredSchema>;

/** @throws UsageError when the text or value is no run record of a known version */
export function parseRunRecord(source: unknown, where = "run.json"): RunRecord {
  return parseRecord(runRecordSchema, where, source);
}

/** The file `run.json`: indented, with a line break at its end. */
export function stringifyRunRecord(record: RunRecord): string {
  return `${JSON.stringify(runRecordSchema.parse(record), null, 2)}\n`;
}
