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
const STATE_VERSION = 4;

const json = z.json() as unknown as z.ZodType<Json>;

const hyperparameters = z.record(
  z.string(),
  z.union([z.number(), z.boolean(), z.array(z.number()), z.null()]),
);

/** Where a trainer is in its run. Every random draw follows from these counters. */
export const trainerStateSchema = z.object({
  /** Training steps done. */
  step: z.int().nonnegative(),
  /** Updates in a row that were left out, up to this step. */
  skippedInARow: z.int().nonnegative(),
  /** Steps that the run was to have in all, which a schedule depends on. */
  trainingSteps: z.int().nonnegative(),
  harness: z.object({
    seed: z.int(),
    nextEpisode: z.int().nonnegative(),
    nextExperience: z.int().nonnegative(),
    algorithm: json.optional(),
    system: json.optional(),
  }),
  sampler: z.record(z.string(), json),
  /** States of the callbacks, by name. */
  callbacks: z.record(z.string(), json),
});

export type TrainerState = z.infer<typeof trainerStateSchema>;

const savedStateSchema = z.object({
  version: z.literal(STATE_VERSION),
  ...trainerStateSchema.shape,
  /** Lengths of the run's files, in bytes, with the lines of that step. */
  bytes: z.object({
    metrics: z.int().nonnegative(),
    graphs: z.int().nonnegative(),
    evaluations: z.int().nonnegative(),
  }),
  optimizer: z.object({
    name: z.string(),
    hyperparameters,
    /** Of the groups of parameters behind the first; absent where there are none. */
    groups: z.array(hyperparameters).optional(),
    steps: z.record(z.string(), z.int().nonnegative()),
  }),
  /** What the run was started with; what changes its results must be the same when it is resumed. */
  run: z.record(z.string(), z.unknown()),
  /** Data types that the system computes in, by computation; absent for a system that does not say. */
  computeTypes: z.record(z.string(), z.string()).optional(),
});

type CompleteState = z.infer<typeof savedStateSchema>;

/** `state/trainer.json` of a checkpoint, apart from what the optimizer adds. */
export type SavedState = Omit<CompleteState, "version" | "optimizer">;

/**
 * Implemented by systems that save their tester in a format of their own, which other tools can load. For others the
 * parameters are saved, in `state/parameters.safetensors`.
 */
export interface TesterStorage {
  /** Writes the tester to a folder, which does not exist yet. */
  saveTester(folder: string): Promise<void>;
  /** false: the parameters are saved instead. Default true. */
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

/** Data types that the system computes in, by computation, where it says so. A resumed run must have the same. */
export function computeTypesOf(system: object): Readonly<Record<string, string>> | null {
  return "computeTypes" in system ? (system.computeTypes as Readonly<Record<string, string>>) : null;
}

/** SHA-256 of the files in a checkpoint's `state/`, by name. */
export type StateDigests = Map<string, string>;

/** Writes the digests of the files in `state/`, by which damage is found. */
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
  state: SavedState,
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
export function readState(folder: string): CompleteState {
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
  const result = savedStateSchema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  throw new UsageError(`${path}: ${issue.path.map(String).join(".")}: ${issue.message}`, {
    cause: result.error,
  });
}

/** Restores the optimizer from `state/`. */
export function loadOptimizer(folder: string, saved: CompleteState["optimizer"], optimizer: Optimizer): void {
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
