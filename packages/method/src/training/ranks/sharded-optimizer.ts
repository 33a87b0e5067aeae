import {
  bytesOf,
  distributed,
  noGrad,
  scope,
  type Optimizer,
  type OptimizerState,
  type Tensor,
} from "@astra-rl/torch";

/**
 * An optimizer whose state is divided among the ranks: each updates its share of the parameters, and sends them to the
 * others (Rajbhandari et al., "ZeRO", arXiv 1910.02054, stage 1). The updates are those of the optimizer that it wraps,
 * bit for bit.
 *
 * Saved states are complete, as without sharding, so that any number of processes can resume them.
 */
export class ShardedOptimizer implements Optimizer {
  readonly name: string;
  readonly #inner: Optimizer;
  readonly #parameters: readonly Tensor[];
  /** Rank that updates each parameter. */
  readonly #owners: readonly number[];

  /**
   * @param inner names its parameters by their index, and skips those without a gradient
   */
  constructor(inner: Optimizer, parameters: readonly Tensor[]) {
    this.name = inner.name;
    this.#inner = inner;
    this.#parameters = parameters;
    this.#owners = ownersOf(parameters, distributed.worldSize());
  }

  get learningRate(): number {
    return this.#inner.learningRate;
  }

  set learningRate(value: number) {
    this.#inner.learningRate = value;
  }

  get groups(): Optimizer["groups"] {
    return this.#inner.groups;
  }

  /** Updates the own parameters; `synchronize` must follow. */
  step(): void {
    for (const [index, parameter] of this.#parameters.entries()) {
      if (this.#owners[index] !== distributed.rank()) parameter.grad = null;
    }
    this.#inner.step();
  }

  /** Sends each parameter from its owner to all ranks. */
  async synchronize(): Promise<void> {
    for (let rank = 0; rank < distributed.worldSize(); rank++) {
      const own = this.#parameters.filter((_, index) => this.#owners[index] === rank);
      await distributed.broadcast_(own, rank);
    }
  }

  bytesToCome(): number {
    const { rank } = distributed;
    const bytes = (parameters: readonly Tensor[]) =>
      parameters.reduce((sum, parameter) => sum + parameter.numel() * bytesOf(parameter.dtype), 0);
    const gradients = bytes(this.#parameters.filter(({ grad }) => grad === null));
    const own = bytes(this.#parameters.filter((_, index) => this.#owners[index] === rank()));
    const state = this.#inner.bytesToCome() - gradients;
    return gradients + Math.ceil((state * own) / Math.max(1, bytes(this.#parameters)));
  }

  zeroGrad(): void {
    this.#inner.zeroGrad();
  }

  /** This rank's part of the state. */
  stateDict(): OptimizerState {
    return this.#inner.stateDict();
  }

  /**
   * Gathers the state of all ranks on rank 0, and gives it to `use` there. All ranks must call this.
   *
   * @param use must not keep the tensors
   */
  async gather(use: (state: OptimizerState) => Promise<void>): Promise<void> {
    const own = this.#inner.stateDict();
    const isFirst = distributed.rank() === 0;
    const parts = await distributed.allGatherObject({ steps: own.steps, names: [...own.tensors.keys()] });
    await scope(async () => {
      const steps: OptimizerState["steps"] = {};
      const tensors: OptimizerState["tensors"] = new Map();
      for (const [index, parameter] of this.#parameters.entries()) {
        const owner = this.#owners[index]!;
        const name = String(index);
        const step = parts[owner]!.steps[name];
        if (step === undefined) continue;
        steps[name] = step;
        for (const key of parts[owner]!.names.filter((each) => each.startsWith(`${name}.`))) {
          const tensor = own.tensors.get(key) ?? noGrad(() => parameter.emptyLike());
          await distributed.broadcast_([tensor], owner);
          if (isFirst) tensors.set(key, tensor);
          else if (!own.tensors.has(key)) tensor.dispose();
        }
      }
      if (isFirst) await use({ ...own, steps, tensors });
    });
  }

  /** Takes this rank's part of a complete state. */
  loadStateDict(saved: OptimizerState): void {
    const isOwn = (name: string) => this.#owners[Number(name.split(".")[0])] === distributed.rank();
    this.#inner.loadStateDict({
      ...saved,
      steps: Object.fromEntries(Object.entries(saved.steps).filter(([name]) => isOwn(name))),
      tensors: new Map([...saved.tensors].filter(([name]) => isOwn(name))),
    });
  }

  dispose(): void {
    this.#inner.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Gives the complete state of an optimizer to `use` on rank 0. All ranks must call this. */
export async function withWholeState(
  optimizer: Optimizer,
  use: (state: OptimizerState) => Promise<void>,
): Promise<void> {
  if (optimizer instanceof ShardedOptimizer) await optimizer.gather(use);
  else if (distributed.rank() === 0) await use(optimizer.stateDict());
}

/** Assigns each parameter to the rank with the fewest numbers so far, largest first. */
export function ownersOf(parameters: readonly Pick<Tensor, "numel">[], ranks: number): number[] {
  const loads = Array.from({ length: ranks }, () => 0);
  const owners = parameters.map(() => 0);
  const order = parameters
    .map((_, index) => index)
    .sort((a, b) => parameters[b]!.numel() - parameters[a]!.numel() || a - b);
  for (const index of order) {
    const rank = loads.indexOf(Math.min(...loads));
    owners[index] = rank;
    loads[rank]! += parameters[index]!.numel();
  }
  return owners;
}
