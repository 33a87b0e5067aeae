import { describe, expect, it } from "vitest";
import { Generator, manualSeed, ones, rand, randint, randn, randperm, scope } from "../src/index.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

describe("Generator", () => {
  it("draws PyTorch's numbers for PyTorch's seeds", () => {
    scope(() => {
      // torch.rand(3, generator=torch.Generator().manual_seed(5)), PyTorch 2.13
      using five = new Generator(5);
      const drawn = rand([3], { generator: five }).toArray() as number[];
      [0.8302518, 0.1261109, 0.9074697].forEach((value, index) => expect(drawn[index]).toBeCloseTo(value, 6));
    });
  });

  it("gives the same stream for the same seed, 0 and bigints included, and different ones for different seeds", () => {
    const draw = (seed: number | bigint) => {
      using generator = new Generator(seed);
      return scope(() => JSON.stringify(randn([20], { generator }).toArray()));
    };
    expect(draw(0)).toBe(draw(0));
    expect(draw(7)).toBe(draw(7n));
    expect(draw(2n ** 64n - 1n)).toBe(draw(2n ** 64n - 1n));
    expect(new Set([draw(0), draw(1), draw(2n ** 63n)]).size).toBe(3);
  });

  it("continues from a saved state, and does not affect other generators", () => {
    scope(() => {
      using a = new Generator(3);
      rand([5], { generator: a });
      const state = a.getState();
      const next = randn([7], { generator: a }).toArray();
      using b = new Generator(99);
      manualSeed(1);
      rand([3]);
      b.setState(state);
      expect(randn([7], { generator: b }).toArray()).toEqual(next);
      a.setState(state);
      expect(randn([7], { generator: a }).toArray()).toEqual(next);
    });
  });

  it("seeds the default stream", () => {
    scope(() => {
      manualSeed(42);
      const first = rand([4]).toArray();
      expect(rand([4]).toArray()).not.toEqual(first);
      manualSeed(42);
      expect(rand([4]).toArray()).toEqual(first);
    });
  });

  it("covers a range of integers evenly and permutes without loss", () => {
    scope(() => {
      using generator = new Generator(1);
      // 6000 draws of six faces: 1000 each, standard deviation 29; six deviations never fail by chance.
      const counts = randint(1, 7, [6000], { generator }).bincount(null, 7).toArray() as number[];
      expect(counts[0]).toBe(0);
      for (const count of counts.slice(1)) expect(Math.abs(count - 1000)).toBeLessThan(175);
      expect(randperm(50, { generator }).sort()[0].toArray()).toEqual(
        Array.from({ length: 50 }, (_, i) => i),
      );
      expect(ones([10_000]).bernoulli_(0.25, { generator }).mean().item()).toBeCloseTo(0.25, 1);
    });
  });

  it("refuses bad seeds, bad states and use after dispose", () => {
    for (const seed of [-1, 1.5, NaN, 2 ** 64, -1n, 2n ** 64n, "1", null]) {
      expect(() => new Generator(seed as number)).toThrow(
        /^Generator: seed must be a whole number in 0 … 2\^64 - 1, got /u,
      );
    }
    expect(() => new Generator(1, "moon")).toThrow(/moon/u);
    const generator = new Generator(1);
    expect(() => generator.setState(new Uint8Array(3))).toThrow(/^setGeneratorState: /u);
    expect(() => generator.setState([1] as unknown as Uint8Array)).toThrow(/must be a Uint8Array/u);
    generator.dispose();
    generator.dispose();
    expect(() => rand([1], { generator })).toThrow(/generator has been disposed/u);
    expect(() => generator.getState()).toThrow(/disposed/u);
  });
});
