import { keyedUniform } from "@astra-rl/lm";

/** Draws in sequence, for generated texts; the same for the same seed and name. */
export class SeededStream {
  #drawn = 0;

  /** @param name different names give different sequences */
  constructor(
    readonly seed: number,
    readonly name: string,
  ) {}

  /** The next number, uniform in [0, 1) with 53 bits. */
  uniform(): number {
    const { seed, name } = this;
    return keyedUniform({ seed, stream: name, episode: 0, node: 0 }, this.#drawn++);
  }

  /** A whole number from 0 to limit − 1, each equally likely. */
  integer(limit: number): number {
    return Math.floor(this.uniform() * limit);
  }
}
