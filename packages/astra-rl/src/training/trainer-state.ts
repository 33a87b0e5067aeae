import { mkdirSync } from "node:fs";
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
import type { System } from "../core/index.js";
import { STATE_VERSION, type CompleteState, type SavedState } from "../run/index.js";

/**
 * Implemented by systems that save their tester in their own format, which other tools can load. For other systems
 * the parameters are saved in `state/parameters.safetensors`.
 */
export interface TesterStorage {
  /** Writes the tester to a folder that does not exist yet. */
  saveTester(folder: string): Promise<void>;
  /** If false, the parameters are saved instead. Default true. */
  readonly storesTester?: boolean;
  /** Copies the weights written by `saveTester` into the existing parameters, bit for bit. */
  restoreTester(folder: string): Promise<void>;
}

export function testerStorage(system: object): TesterStorage | null {
  const { storesTester = true } = system as Partial<TesterStorage>;
  return "saveTester" in system && "restoreTester" in system && storesTester
    ? (system as TesterStorage)
    : null;
}

/** The system's compute dtypes by computation; null if it does not report them. A resumed run must use the same. */
export function computeTypesOf(system: object): Readonly<Record<string, string>> | null {
  return "computeTypes" in system ? (system.computeTypes as Readonly<Record<string, string>>) : null;
}

/**
 * Writes a checkpoint to a new folder: the tester's weights, and what else belongs to it.
 *
 * @param writeState writes files to `state/`, and adds the digests by which damage to them is found
 */
export async function saveCheckpoint<S, A>(
  system: System<S, A>,
  folder: string,
  writeState?: (state: string, digests: Map<string, string>) => void,
): Promise<void> {
  const state = join(folder, "state");
  const digests = new Map<string, string>();
  const storage = testerStorage(system);
  if (storage !== null) await storage.saveTester(folder);
  if (storage === null || writeState !== undefined) mkdirSync(state, { recursive: true });
  if (storage === null) {
    const parameters = [...system.parameters()].map((tensor, index) => [String(index), tensor] as const);
    writeSafetensors(join(state, "parameters.safetensors"), new Map(parameters), {}, digests);
  }
  writeState?.(state, digests);
  if (digests.size > 0) writeDigests(state, digests);
}

/** Copies the weights of a checkpoint into the system's parameters, in place. */
export async function restoreTester<S, A>(system: System<S, A>, folder: string): Promise<void> {
  const storage = testerStorage(system);
  if (storage !== null) await storage.restoreTester(folder);
  else loadParameters([...system.parameters()] as Tensor[], join(folder, "state", "parameters.safetensors"));
  await system.testerUpdated();
}

/** Writes the state of a trainer and its optimizer to `state/`. */
export function saveState(
  folder: string,
  state: SavedState,
  { tensors, ...kept }: OptimizerState,
  digests: Map<string, string>,
): void {
  writeSafetensors(join(folder, "optimizer.safetensors"), tensors, {}, digests);
  const plain = { version: STATE_VERSION, ...state, optimizer: kept };
  writeFileAtomic(join(folder, "trainer.json"), [`${JSON.stringify(plain, null, 2)}\n`]);
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
