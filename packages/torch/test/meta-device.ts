import { TorchError } from "@astra-rl/base";
import type { Device } from "../src/dtype.js";
import { addon, exchanged, type NativeAddon } from "../src/native.js";
import { operatorNames } from "../src/operator-names.generated.js";
import { testAddon } from "./test-addon.js";

/** Functions that accept tensors on any device, or none. All others are operators, or CPU kernels. */
const PLACELESS: ReadonlySet<string> = new Set<keyof NativeAddon>([
  "describe",
  "release",
  "releaseWords",
  "exchange",
  "hasOperator",
  "sharesStorage",
  "isDense",
  "locate",
  "strides",
  "requiresGrad",
  "isLeaf",
  "version",
  "setRequiresGrad",
  "gradient",
  "setGradient",
  "attachFunction",
  "deliverGradients",
  "backward",
  "gradients",
  "releaseGenerator",
  "generatorState",
  "setGeneratorState",
  "readFile",
  // These check the device themselves, and leave tensors outside the CPU to libtorch, or to their caller.
  "fusedAttention",
  "copyColumns",
  "decodeAttention",
]);

/**
 * From now on, for the rest of the process, operators run on libtorch's "meta" device, whose tensors have shapes, types
 * and a device but no numbers. As on a GPU, combining CPU tensors with such tensors is an error, except for single
 * numbers, and so is a CPU kernel.
 *
 * @returns the device
 */
export function metaDevice(): Device {
  const native = testAddon() as unknown as Record<string, (...values: unknown[]) => unknown>;
  testAddon().computeOnMeta();
  for (const [name, run] of Object.entries(native)) {
    if (typeof run !== "function" || PLACELESS.has(name)) continue;
    native[name] = (...values) => {
      const isOperator = name === "call" || name === "callOnWords";
      const { onMeta, elsewhere } = places(
        name === "callOnWords" ? writtenArguments(Number(values[2])) : isOperator ? values.slice(2) : values,
      );
      if (onMeta && !isOperator) throw new TorchError(`${name}: takes tensors of the CPU only`);
      // Copies are allowed between all devices.
      if (onMeta && elsewhere && !/^aten::(to|_to_copy|copy_)/u.test(operatorNames[Number(values[0])]!)) {
        throw new TorchError(
          `${operatorNames[Number(values[0])]}: a tensor of the CPU beside tensors on meta`,
        );
      }
      return run(...values);
    };
  }
  return "meta" as Device;
}

/** The numbers among the arguments of an operator that were written for it: see words.cpp. */
function writtenArguments(count: number): number[] {
  const { words } = exchanged;
  const numbers: number[] = [];
  for (let at = 0, read = 0; read < count; read += 1) {
    const tag = words[at++];
    const length = tag === 4 ? 1 : tag === 5 ? words[at++]! : 0;
    numbers.push(...words.subarray(at, at + length));
    at += length;
  }
  return numbers;
}

/** Whether some tensors of a call are on meta, and some, of more than one number, are not. */
function places(values: readonly unknown[]): { onMeta: boolean; elsewhere: boolean } {
  const found = { onMeta: false, elsewhere: false };
  for (const value of values.flat()) {
    // Handles are larger than any other number passed to operators.
    if (typeof value !== "number" || !Number.isInteger(value) || value < 2 ** 32) continue;
    const [, , device, ...sizes] = addon().describe(value);
    if (device === "meta") found.onMeta = true;
    else if (sizes.length > 0) found.elsewhere = true;
  }
  return found;
}
