import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import {
  checkDigest,
  noGrad,
  openSafetensors,
  scope,
  UsageError,
  writeDigests,
  writeFileAtomic,
  writeSafetensors,
  type Optimizer,
  type OptimizerState,
  type Tensor,
} from "@astra-rl/torch";
import { z } from "zod";
import type { Json, System } from "../core/index.js";

/** The version of `state/` that this release writes and reads. */
const STATE_VERSION = 3;

const json = z.json() as unknown as z.ZodType<Json>;

const hyperparameters = z.record(
  z.string(),
  z.union([z.number(), z.boolean(), z.array(z.number()), z.null()]),
);

const stateSchema = z.object({
  version: z.literal(STATE_VERSION),
  /** Training steps done. */
  step: z.int().nonnegative(),
  /** Lengths of the run's files with the lines of that step. */
  bytes: z.object({
    metrics: z.int().nonnegative(),
    graphs: z.int().nonnegative(),
    evaluations: z.int().nonnegative(),
  }),
  skippedInARow: z.int().nonnegative(),
  /** How many the run was to have in all; a schedule reads it. */
  trainingSteps: z.int().nonnegative(),
  /** Best mean final reward on the dev prompts so far; null before the first evaluation. */
  bestScore: z.number().nullable(),
  harness: z.object({
    seed: z.int(),
    nextEpisode: z.int().nonnegative(),
    nextExperience: z.int().nonnegative(),
    algorithm: json.optional(),
    system: json.optional(),
  }),
  /** Gradients that wait for further batches, in gradients.safetensors; null where there are none. */
  pending: z
    .object({ batches: z.int().positive(), weight: z.number().nonnegative(), scale: z.number().positive() })
    .nullable(),
  watches: json,
  /** What callbacks remember, by their names; absent in checkpoints of before there were any. */
  callbacks: z.record(z.string(), json).optional(),
  sampler: z.record(z.string(), json),
  optimizer: z.object({
    name: z.string(),
    hyperparameters,
    /** Of the groups of parameters behind the first; absent where there are none. */
    groups: z.array(hyperparameters).optional(),
    steps: z.record(z.string(), z.int().nonnegative()),
  }),
  /** What the run was started with; what changes its results must be the same when it is resumed. */
  run: z.record(z.string(), z.unknown()),
  /** Types that the system computes in, by what it computes; absent for a system that does not tell. */
  computeTypes: z.record(z.string(), z.string()).optional(),
});

/** Everything but tensors that a trainer needs to go on exactly. Every random draw follows from these counters. */
export type TrainerState = z.infer<typeof stateSchema>;

/**
 * What a system may offer so that its tester is saved in a format of its own, which others can load. A system
 * without it gets `state/parameters.safetensors`.
 */
export interface TesterStorage {
  /** Writes the tester to a folder, which does not exist yet. */
  saveTester(folder: string): Promise<void>;
  /** false: there is nothing that these methods could write, so that the parameters are saved. Default true. */
  readonly storesTester?: boolean;
  /** Puts the weights that `saveTester` wrote into the existing parameters, bit for bit. */
  restoreTester(folder: string): Promise<void>;
}

export function testerStorage(system: object): TesterStorage | null {
  const { storesTester = true } = system as Partial<TesterStorage>;
  return "saveTester" in system && "restoreTester" in system && storesTester
    ? (system as TesterStorage)
    : null;
}

/** What a system may tell: types that it computes in, by what it computes. A resumed run must have the same. */
export function computeTypesOf(system: object): Readonly<Record<string, string>> | null {
  return "computeTypes" in system ? (system.computeTypes as Readonly<Record<string, string>>) : null;
}

/** SHA-256 of the files in a checkpoint's `state/`, by name. */
export type StateDigests = Map<string, string>;

/** Writes down what is in `state/`, so that damage is found. */
export function saveDigests(folder: string, digests: StateDigests): void {
  if (digests.size > 0) writeDigests(join(folder, "state"), digests);
}

/** Writes the tester's weights to a new folder. */
export async function saveTester<S, A>(
  system: System<S, A>,
  folder: string,
  digests: StateDigests | null = null,
): Promise<void> {
  const storage = testerStorage(system);
  if (storage !== null) {
    await storage.saveTester(folder);
    return;
  }
  mkdirSync(join(folder, "state"), { recursive: true });
  const parameters = ([...system.parameters()] as Tensor[]).map(
    (tensor, index) => [String(index), tensor] as const,
  );
  writeSafetensors(join(folder, "state", "parameters.safetensors"), new Map(parameters), {}, digests);
}

/** Puts the weights of a checkpoint into the system's parameters, in place. */
export async function restoreTester<S, A>(system: System<S, A>, folder: string): Promise<void> {
  const storage = testerStorage(system);
  if (storage !== null) await storage.restoreTester(folder);
  else loadParameters([...system.parameters()] as Tensor[], join(folder, "state", "parameters.safetensors"));
  await system.testerUpdated();
}

/** Writes `state/` into a checkpoint's folder. */
export function saveState(
  folder: string,
  state: Omit<TrainerState, "version" | "optimizer">,
  optimizer: Optimizer,
  digests: StateDigests | null = null,
): void {
  mkdirSync(join(folder, "state"), { recursive: true });
  const { tensors, ...kept } = optimizer.stateDict();
  writeSafetensors(join(folder, "state", "optimizer.safetensors"), tensors, {}, digests);
  const plain = { version: STATE_VERSION, ...state, optimizer: kept };
  writeFileAtomic(join(folder, "state", "trainer.json"), [`${JSON.stringify(plain, null, 2)}\n`]);
}

/** @throws UsageError when the file is missing, not JSON or not a state of this version */
export function readState(folder: string): TrainerState {
  const path = join(folder, "state", "trainer.json");
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    const rule =
      (cause as NodeJS.ErrnoException).code === "ENOENT"
        ? "there is no such file, so this checkpoint cannot be resumed, only loaded"
        : "cannot be read as JSON";
    throw new UsageError(`${path}: ${rule}`, { cause });
  }
  const version = (value as { version?: unknown } | null)?.version;
  if (typeof version === "number" && version !== STATE_VERSION) {
    throw new UsageError(
      `${path}: has version ${version} and this release goes on from version ${STATE_VERSION}; its weights can be ` +
        `loaded, as the tester of a new run`,
    );
  }
  const result = stateSchema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  throw new UsageError(`${path}: ${issue.path.map(String).join(".")}: ${issue.message}`, {
    cause: result.error,
  });
}

/** Writes the gradients of the parameters that have one. */
export function saveGradients(
  folder: string,
  parameters: readonly Tensor[],
  digests: StateDigests | null = null,
): void {
  const gradients = parameters.flatMap(({ grad }, index) =>
    grad === null ? [] : [[String(index), grad] as const],
  );
  writeSafetensors(join(folder, "state", "gradients.safetensors"), new Map(gradients), {}, digests);
}

/** Gives the parameters the gradients that were written, and no others. */
export function loadGradients(folder: string, parameters: readonly Tensor[]): void {
  const path = join(folder, "state", "gradients.safetensors");
  checkDigest(path);
  const file = openSafetensors(path);
  for (const [index, parameter] of parameters.entries()) {
    const gradient = file.tensors.has(String(index)) ? file.read(String(index)) : null;
    if (gradient !== null && String(gradient.shape) !== String(parameter.shape)) {
      throw new UsageError(
        `${path}: gradient ${index} must have shape [${parameter.shape.join(", ")}], got [${gradient.shape.join(", ")}]`,
      );
    }
    parameter.grad = gradient;
  }
  file.close();
}

/** Restores the optimizer from `state/`. */
export function loadOptimizer(folder: string, saved: TrainerState["optimizer"], optimizer: Optimizer): void {
  scope(() => {
    const path = join(folder, "state", "optimizer.safetensors");
    checkDigest(path);
    const file = openSafetensors(path);
    const tensors = new Map([...file.tensors.keys()].map((name) => [name, file.read(name)]));
    optimizer.loadStateDict({ ...saved, tensors } as OptimizerState);
    file.close();
  });
}

function loadParameters(parameters: readonly Tensor[], path: string): void {
  noGrad(() =>
    scope(() => {
      checkDigest(path);
      const file = openSafetensors(path);
      if (file.tensors.size !== parameters.length) {
        throw new UsageError(
          `${path}: must hold the system's ${parameters.length} parameters, got ${file.tensors.size} tensors`,
        );
      }
      const stored = parameters.map((parameter, index) => {
        const tensor = file.read(String(index));
        const [given, needed] = [tensor, parameter].map(
          ({ dtype, shape }) => `${dtype} [${shape.join(", ")}]`,
        );
        if (given !== needed)
          throw new UsageError(`${path}: tensor ${index} must be ${needed}, got ${given}`);
        return tensor;
      });
      for (const [index, parameter] of parameters.entries()) parameter.copy_(stored[index]!);
      file.close();
    }),
  );
}
