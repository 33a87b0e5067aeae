/** Random numbers of one case: they depend only on the seed and the case, so that any case can be run alone. */
export class Random {
  #state: number;

  constructor(seed: number, index: number) {
    this.#state = (Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(index + 1, 0xc2b2ae35)) >>> 0;
    for (let round = 0; round < 3; round += 1) this.next();
  }

  /** In [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number in least … greatest. */
  integer(least: number, greatest: number): number {
    return least + Math.floor(this.next() * (greatest - least + 1));
  }

  /** A separate sequence, the same for the same salt. */
  fork(salt: number): Random {
    return new Random(salt, 0);
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(values: readonly T[]): T {
    return values[this.integer(0, values.length - 1)] as T;
  }
}
