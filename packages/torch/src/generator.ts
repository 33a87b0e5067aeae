/** Seeded random numbers for operators that take a generator. */
import { describeValue, TorchError } from "@astra-rl/base";
import type { Device } from "./dtype.js";
import { addon } from "./native.js";
import { wrap } from "./operator-call.js";
import { tensor } from "./factories.js";

const finalizer = new FinalizationRegistry<number>((handle) => addon().releaseGenerator(handle));

function checkSeed(where: string, seed: unknown): void {
  const isWhole = typeof seed === "bigint" || (typeof seed === "number" && Number.isSafeInteger(seed));
  if (!isWhole || seed < 0 || seed >= 1n << 64n) {
    throw new TorchError(`${where}: seed must be a whole number in 0 … 2^64 - 1, got ${describeValue(seed)}`);
  }
}

/**
 * libtorch's CPU generator silently drops all but the low 32 bits of a seed. Larger seeds are hashed to 32 bits, so
 * that 2^32 differs from 0; smaller ones give PyTorch's own streams.
 */
function foldSeed(seed: number | bigint): number {
  if (seed < 2 ** 32) return Number(seed);
  let mixed = BigInt(seed);
  for (const multiplier of [0xbf58476d1ce4e5b9n, 0x94d049bb133111ebn]) {
    mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 29n)) * multiplier);
  }
  return Number(mixed >> 32n);
}

/** A stream of random numbers: the same seed gives the same stream on the same build of libtorch. */
export class Generator {
  /** 0 once disposed. @internal */
  generatorHandle: number;
  readonly device: Device;

  constructor(seed: number | bigint, device: Device = "cpu") {
    checkSeed("Generator", seed);
    this.device = device;
    this.generatorHandle = addon().createGenerator(foldSeed(seed), device);
    finalizer.register(this, this.generatorHandle, this);
  }

  /** The complete state, for `setState` of a generator on the same kind of device. */
  getState(): Uint8Array {
    const state = wrap(addon().generatorState(this.generatorHandle));
    try {
      return state.toTypedArray() as Uint8Array;
    } finally {
      state.dispose();
    }
  }

  setState(state: Uint8Array): void {
    if (!(state instanceof Uint8Array)) {
      throw new TorchError(`Generator.setState: state must be a Uint8Array, got ${describeValue(state)}`);
    }
    const bytes = tensor(state);
    try {
      addon().setGeneratorState(this.generatorHandle, bytes.handle);
    } finally {
      bytes.dispose();
    }
  }

  dispose(): void {
    if (this.generatorHandle === 0) return;
    finalizer.unregister(this);
    addon().releaseGenerator(this.generatorHandle);
    this.generatorHandle = 0;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Seeds the default generators, used by operators without an explicit generator. */
export function manualSeed(seed: number | bigint): void {
  checkSeed("manualSeed", seed);
  addon().manualSeed(foldSeed(seed));
}
