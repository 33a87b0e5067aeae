/** Passes over the same tensors that a GPU repeats as a whole. */
import { UsageError } from "@astra-rl/base";
import { PassWatcher, type Pass } from "./graph-pass.js";
import { describe } from "./exchange.js";
import { addon, watching, type Handle } from "./native.js";
import { isTensor } from "./operator-call.js";
import { dispose, noGrad, scope, tensorsIn, untrack } from "./scope.js";
import type { Tensor } from "./tensor.js";

/** Tensors by name: a pass reads them, and may write to them in place. */
export type GraphInputs = Readonly<Record<string, Tensor | readonly Tensor[] | null>>;

export interface GraphOptions {
  /** Called at most once, if a GPU cannot repeat the pass as a whole, so that its operators are launched one by one. */
  warn?: (message: string) => void;
  /**
   * Tensors that the pass reads besides its inputs, such as weights, as they are now: looked up before each pass, which is
   * refused if one is not where it was. Default: none, so that only those are checked that the first pass read.
   */
  constants?: () => Iterable<Tensor>;
}

/** A pass that can be repeated: see {@link graph}. */
export interface Graph<T> {
  /** Whether a GPU repeats it as a whole. */
  readonly isCaptured: boolean;
  /** What the last pass returned. The tensors stay the same; each pass writes to them. */
  readonly outputs: T;
  /**
   * One more pass, or several.
   *
   * @throws UsageError if a tensor is not where it was in the first pass; on other devices than a GPU also for anything
   * that a graph would not repeat
   */
  replay(passes?: number): T;
  /** Frees the outputs, and what the GPU keeps. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** Passes before the one that is kept: the first makes what later ones only use, the second is recorded, others compared. */
const WARM_UPS = 3;
/** In the place of a pass's number: without comparing it. */
const UNWATCHED = Infinity;

/**
 * Makes a pass repeatable, without gradients. On a GPU it is captured once: a repetition launches all of its operators
 * together, and JavaScript does not run (`at::cuda::CUDAGraph`). On other devices `fn` runs each time, and is checked for
 * whatever a graph would silently not repeat: numbers that change, readbacks, copies from the host, other tensors than
 * before, other results.
 *
 * `fn` runs several times before this function returns, and so do its effects on tensors. What it reads besides its inputs
 * (weights) may be changed in place between passes, but not replaced.
 *
 * @param fn a synchronous pass over the inputs, which returns tensors, or a tree of them
 * @throws UsageError for a pass that cannot be repeated; what it does is in the message
 */
export function graph<I extends GraphInputs, T>(
  fn: (inputs: I) => T,
  inputs: I,
  options: GraphOptions = {},
): Graph<T> {
  return new RepeatedPass(fn, inputs, options);
}

/** A tensor, and where it was at the first pass. */
interface Placed {
  name: string;
  handle: Handle;
  address: number;
}

class RepeatedPass<I extends GraphInputs, T> implements Graph<T> {
  readonly #given: readonly (Placed & { tensor: Tensor })[];
  /** Those that the recorded pass read, and those of the options. */
  #read: readonly Placed[] = [];
  readonly #constants: readonly Placed[];
  #first: Pass | null = null;
  #outputs: { tree: T; tensors: readonly Tensor[] } | null = null;
  #captured: Handle | null = null;
  #isLaunched = false;

  constructor(
    private readonly fn: (inputs: I) => T,
    private readonly inputs: I,
    private readonly options: GraphOptions,
  ) {
    this.#given = this.#namedInputs().map(([name, tensor]) => ({ tensor, ...placed(name, tensor.handle) }));
    this.#constants = this.#namedConstants();
    const device = this.#given[0]?.tensor.device ?? "cpu";
    try {
      if (device.startsWith("cuda")) this.#capture(device);
      else for (let time = 1; time < WARM_UPS; time += 1) this.#run(time);
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  get isCaptured(): boolean {
    return this.#captured !== null;
  }

  get outputs(): T {
    return this.#alive().tree;
  }

  replay(passes = 1): T {
    const { tree } = this.#alive();
    this.#checkInputs();
    this.#checkConstants();
    for (let pass = 0; pass < passes; pass += 1) {
      if (this.#captured !== null) addon().replayGraph(this.#captured);
      else this.#run(this.#isLaunched ? UNWATCHED : WARM_UPS);
    }
    return tree;
  }

  dispose(): void {
    if (this.#captured !== null) addon().releaseGraph(this.#captured);
    dispose(this.#made(this.#outputs?.tensors ?? []));
    this.#captured = null;
    this.#outputs = null;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #alive() {
    if (this.#outputs !== null) return this.#outputs;
    throw new UsageError("graph-disposed", "graph: it was disposed of; make a new one");
  }

  #capture(device: string): void {
    let time = 0;
    try {
      this.#captured = addon().captureGraph(device, WARM_UPS, () => {
        time += 1;
        this.#run(time <= WARM_UPS ? time : UNWATCHED);
      });
    } catch (error) {
      // What the pass itself does wrong, it does when its operators are launched, too.
      if (error instanceof UsageError || (time > 0 && time <= WARM_UPS)) throw error;
      this.options.warn?.(
        `the GPU cannot repeat this pass as a whole, so its operators are launched one by one: ${(error as Error).message}`,
      );
      this.#isLaunched = true;
      while (time < WARM_UPS) this.#run((time += 1));
    }
  }

  /** @param time number of the pass, from 1 on */
  #run(time: number): void {
    noGrad(() =>
      scope(() => {
        if (time === 1 || time === UNWATCHED) return this.#give(this.fn(this.inputs));
        const names = new Map(this.#given.map(({ name, handle }) => [handle, name]));
        const watcher = new PassWatcher(addon(), names, this.#first);
        const result = watching(watcher.addon(), () => this.fn(this.inputs));
        const pass = watcher.end();
        if (this.#first === null) {
          this.#first = pass;
          this.#read = [...pass.constants.keys()].map((handle) => placed(titleOf(handle), handle));
        }
        this.#give(result);
      }),
    );
  }

  /** Writes what a pass returned to the outputs. */
  #give(result: T): void {
    const tensors = [...tensorsIn(result)] as Tensor[];
    if (this.#outputs === null) {
      this.#made(tensors).forEach(untrack);
      this.#outputs = { tree: result, tensors };
      return;
    }
    const known = this.#outputs.tensors;
    if (tensors.length !== known.length) {
      throw changed("output-changed", "their number", String(known.length), String(tensors.length));
    }
    const made = new Set(this.#made(known));
    tensors.forEach((tensor, at) => {
      const first = known[at]!;
      if (layoutOf(tensor) !== layoutOf(first)) {
        throw changed("output-changed", `number ${at + 1}`, layoutOf(first), layoutOf(tensor));
      }
      if (made.has(first)) first.copy_(tensor);
      else if (first !== tensor)
        throw changed("output-changed", `number ${at + 1}`, "an input", "another tensor");
    });
  }

  /** Without those of the caller. */
  #made(tensors: readonly Tensor[]): Tensor[] {
    const given = new Set(this.#given.map(({ tensor }) => tensor));
    return tensors.filter((tensor) => !given.has(tensor));
  }

  #namedInputs(): [name: string, tensor: Tensor][] {
    return Object.entries(this.inputs).flatMap(([name, value]) => {
      if (value === null) return [];
      if (isTensor(value)) return [[name, value] as [string, Tensor]];
      return value.map((tensor, at): [string, Tensor] => [`${name}[${at}]`, tensor]);
    });
  }

  #namedConstants(): Placed[] {
    const tensors = [...(this.options.constants?.() ?? [])];
    return tensors.map((tensor, at) => placed(`number ${at + 1} (${tensor.toString()})`, tensor.handle));
  }

  #checkInputs(): void {
    const now = this.#namedInputs();
    const names = (all: readonly string[]) => all.join(", ");
    const [before, after] = [this.#given.map(({ name }) => name), now.map(([name]) => name)].map(names);
    if (before !== after) throw changed("input-changed", "their names", before!, after!);
    const places = locate(now.map(([, { handle }]) => handle));
    now.forEach(([name, tensor], at) => {
      const { tensor: first, address } = this.#given[at]!;
      if (places[at] === -1 || (tensor !== first && first.disposed))
        throw changed("input-changed", name, "a tensor", "none: it was disposed of");
      if (tensor !== first && layoutOf(tensor) !== layoutOf(first)) {
        throw changed("input-changed", name, layoutOf(first), layoutOf(tensor));
      }
      if (places[at] !== address)
        throw changed("input-changed", name, "where it was", "a tensor at another address");
    });
  }

  #checkConstants(): void {
    const places = locate(this.#read.map(({ handle }) => handle));
    const moved = this.#read.find(({ address }, at) => places[at] !== address);
    if (moved !== undefined)
      throw changed("constant-changed", moved.name, "where it was", "none: it was disposed of");
    const now = this.#namedConstants();
    if (now.length !== this.#constants.length) {
      throw changed("constant-changed", "their number", String(this.#constants.length), String(now.length));
    }
    this.#constants.forEach(({ name, address }, at) => {
      if (now[at]!.address !== address)
        throw changed("constant-changed", name, "where it was", "a tensor at another address");
    });
  }
}

const REMEDIES = {
  "input-changed": "write to the first one with copy_, or make a new graph",
  "constant-changed": "change weights in place with copy_, or make a new graph",
  "output-changed": "results must not depend on anything but the numbers of tensors",
};

function changed(rule: keyof typeof REMEDIES, which: string, before: string, after: string): UsageError {
  return new UsageError(
    rule,
    `graph: ${rule.split("-")[0]}s: ${which} must be ${before} as at the first pass, got ${after}; ${REMEDIES[rule]}`,
  );
}

function locate(handles: readonly Handle[]): Float64Array {
  const places = Float64Array.from(handles);
  addon().locate(places);
  return places;
}

const placed = (name: string, handle: Handle): Placed => ({ name, handle, address: locate([handle])[0]! });

function titleOf(handle: Handle): string {
  const { dtype, shape } = describe(handle);
  return `${dtype}[${shape.join(", ")}]`;
}

const layoutOf = (tensor: Tensor): string =>
  `${tensor.dtype}[${tensor.shape.join(", ")}] on ${tensor.device}, strides [${addon().strides(tensor.handle).join(", ")}]`;
