/** One pass of a graph, seen call by call: what it does must be the same each time, with the same tensors. */
import { describeValue, UsageError } from "@astra-rl/base";
import { writtenValues } from "./exchange.js";
import type { Handle, NativeAddon } from "./native.js";
import { operatorNames } from "./operator-names.generated.js";

type Entry = Exclude<keyof NativeAddon, "item" | "copyData">;

/** Functions that neither compute nor change what a tensor holds. */
const QUIET: ReadonlySet<string> = new Set<Entry>([
  "describe",
  "release",
  "releaseWords",
  "liveTensors",
  "sharesStorage",
  "isDense",
  "requiresGrad",
  "isLeaf",
  "version",
  "locate",
  "strides",
  "information",
  "hasOperator",
  "exchange",
]);
/** Functions that wait for results of the device. */
const READING: ReadonlySet<string> = new Set<keyof NativeAddon>([
  "item",
  "copyData",
  "synchronize",
  "generatorState",
]);
/** Functions whose tensors are made of the host's numbers. */
const MAKING: ReadonlySet<string> = new Set<keyof NativeAddon>(["fromData", "readFile", "createGenerator"]);
/** Operators that read results to know how large their own are. */
const SIZED_BY_RESULTS =
  /^aten::(?:nonzero|masked_select|unique\w*|equal|allclose|bincount|one_hot|repeat_interleave\.self_Tensor)/u;

const DEVICE = /^(cpu|cuda|meta)(?::\d+)?$/u;
/** No other number that an operator takes is as large: see handle-table.h. */
const LEAST_HANDLE = 2 ** 32;

/** What a call was given: a value, or where a tensor came from. */
type Given =
  | { kind: "value"; value: unknown }
  /** An input, or a tensor that the pass made: number `value` of these. */
  | { kind: "input" | "made"; value: string }
  /** A tensor from outside: its address. */
  | { kind: "constant"; value: number; handle: Handle };

interface Made {
  name: string;
  given: readonly Given[];
}

/** What a pass did. */
export interface Pass {
  readonly calls: readonly Made[];
  /** Handles of the tensors from outside that are not among the inputs, with their addresses. */
  readonly constants: ReadonlyMap<Handle, number>;
}

const refuse = (rule: string, message: string): never => {
  throw new UsageError(rule, `graph: ${message}`);
};

/** Records a pass or, given an earlier one, compares it with that, call by call. */
export class PassWatcher {
  readonly #calls: Made[] = [];
  readonly #constants = new Map<Handle, number>();
  readonly #sources = new Map<Handle, Given>();

  /**
   * @param inputs names by handle
   * @param earlier null for the first pass
   */
  constructor(
    private readonly native: NativeAddon,
    inputs: ReadonlyMap<Handle, string>,
    private readonly earlier: Pass | null,
  ) {
    for (const [handle, value] of inputs) this.#sources.set(handle, { kind: "input", value });
  }

  /** The addon, for `watching`. */
  readonly addon = (): NativeAddon => {
    const entries = Object.entries(this.native).map(([name, run]: [string, unknown]) => {
      if (typeof run !== "function" || QUIET.has(name)) return [name, run];
      return [name, (...values: unknown[]) => this.#called(name, run as Run, values)];
    });
    return Object.fromEntries(entries) as NativeAddon;
  };

  /** What was recorded. @throws UsageError if the earlier pass went on */
  end(): Pass {
    const { earlier } = this;
    const left = earlier?.calls[this.#calls.length];
    if (left !== undefined) this.#differs(`it ends before ${left.name}, which it called`);
    return { calls: this.#calls, constants: this.#constants };
  }

  #called(name: string, run: Run, values: unknown[]): unknown {
    const isOperator = name === "call" || name === "callOnWords";
    const title = isOperator ? operatorNames[Number(values[0])]! : name;
    if (READING.has(name) || SIZED_BY_RESULTS.test(title)) {
      refuse(
        "readback-in-graph",
        `${title} waits for results of the device, which is impossible within a graph; compute with them on the ` +
          "device, or read them after the pass",
      );
    }
    if (MAKING.has(name)) {
      refuse(
        "host-copy-in-graph",
        `${title} makes a tensor of numbers of the host, which a graph would repeat unchanged; make it before, pass it ` +
          "as an input and write to it with copy_ between passes",
      );
    }
    // The words are overwritten by calls that follow.
    const taken =
      name === "callOnWords" ? writtenValues(Number(values[2])) : isOperator ? values.slice(2) : values;
    const given = taken.flat().map((value) => this.#source(value));
    const place = this.#calls.push({ name: title, given }) - 1;
    this.#compare(place);
    const devices = this.#devicesOf(taken.flat());
    this.#checkDevices(title, devices);
    const result = run(...values);
    const results = [result].flat().filter((each) => this.#isTensor(each));
    results.forEach((handle, at) => {
      this.#sources.set(handle as Handle, { kind: "made", value: `${place}.${at}` });
    });
    this.#checkDevices(title, [...devices, ...this.#devicesOf(results)]);
    return result;
  }

  #isTensor(value: unknown): value is Handle {
    if (typeof value !== "number" || !Number.isInteger(value) || value < LEAST_HANDLE) return false;
    return this.#addressOf(value) >= 0;
  }

  #addressOf(handle: Handle): number {
    const place = Float64Array.of(handle);
    this.native.locate(place);
    return place[0]!;
  }

  #source(value: unknown): Given {
    const known = this.#sources.get(value as Handle);
    if (known !== undefined) return known;
    if (!this.#isTensor(value)) return { kind: "value", value };
    const constant = { kind: "constant", value: this.#addressOf(value), handle: value } as const;
    this.#constants.set(value, constant.value);
    this.#sources.set(value, constant);
    return constant;
  }

  #compare(place: number): void {
    if (this.earlier === null) return;
    const [before, now] = [this.earlier.calls[place], this.#calls[place]!];
    if (before === undefined) return this.#differs(`it goes on with ${now.name}`);
    if (before.name !== now.name || before.given.length !== now.given.length) {
      return this.#differs(`call ${place + 1} is ${now.name}, and was ${before.name}`);
    }
    now.given.forEach((given, at) => {
      const known = before.given[at]!;
      if (known.kind === given.kind && Object.is(known.value, given.value)) return;
      const where = `call ${place + 1}, ${now.name}, argument ${at + 1}`;
      if (known.kind === "constant" && given.kind !== "value") {
        refuse(
          "constant-changed",
          `${where}: is another tensor than in the first pass, which a graph would go on reading; write to the first ` +
            "one with copy_, pass it as an input, or make a new graph",
        );
      }
      if (known.kind === "value" && given.kind === "value") {
        refuse(
          "number-changed",
          `${where}: must be ${describeValue(known.value)} as in the first pass, got ${describeValue(given.value)}; a ` +
            "graph repeats the numbers of its first pass: put one that changes into a tensor, or make a graph for each",
        );
      }
      this.#differs(`${where}: is another tensor`);
    });
  }

  #differs(how: string): void {
    refuse(
      "calls-changed",
      `every pass must make the same calls as the first, but ${how}; make a graph for each case`,
    );
  }

  /** Kinds of devices of some arguments: a text among them may name one. */
  #devicesOf(values: readonly unknown[]): string[] {
    return values.flatMap((value) => {
      const device = this.#isTensor(value) ? this.native.describe(value)[2] : value;
      const [, kind] = typeof device === "string" ? (DEVICE.exec(device) ?? []) : [];
      return kind ?? [];
    });
  }

  /** Between kinds of devices, numbers go through the host. */
  #checkDevices(title: string, devices: readonly string[]): void {
    const kinds = [...new Set(devices)];
    if (kinds.length <= 1) return;
    refuse(
      "host-copy-in-graph",
      `${title} copies between ${kinds.join(" and ")}; within a graph all tensors must be on one device`,
    );
  }
}

type Run = (...values: unknown[]) => unknown;
