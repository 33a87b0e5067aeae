import { describe, expect, it, vi } from "vitest";
import { availableMemory, noGrad, ones, setAllocationLimit } from "@astra-rl/torch";
import { OutOfMemoryError, TorchError, keysAt } from "@astra-rl/base";
import { configurationJsonSchema } from "@astra-rl/assembly";
import { MEMORY_ADVICE } from "../../src/training/memory-advice.js";
import { withMemoryAdvice } from "../../src/training/index.js";
import { assemble } from "./support.js";

const tooLarge = () => noGrad(() => ones([1 << 20]).dispose());

describe("insufficient memory", () => {
  it("gives an error with the sizes, and the keys that reduce them, once", async () => {
    setAllocationLimit(1 << 20);
    try {
      const nested = withMemoryAdvice("evaluation", () =>
        withMemoryAdvice("rollout", async () => {
          await Promise.resolve();
          tooLarge();
        }),
      );
      const error = await nested.then(
        () => null,
        (thrown: unknown) => thrown,
      );
      expect(error).toBeInstanceOf(OutOfMemoryError);
      const { message, cause } = error as OutOfMemoryError;
      expect(message).toMatch(
        /^aten::ones: needs 4194304 bytes at once, the limit is 1048576 \(.*\); to use less, lower training\.numEpisodes/u,
      );
      expect(message.match(/to use less/gu)).toHaveLength(1);
      expect(cause).toBeInstanceOf(OutOfMemoryError);
    } finally {
      setAllocationLimit(null);
    }
  });

  it.each([
    ["rollouts", "rolloutMany", /to use less, lower training\.numEpisodesPerExperience, sampler\.width/u],
    ["updates", "step", /to use less, lower training\.batchSize/u],
    ["evaluations", "evalRolloutMany", /to use less, lower evaluation\.batchSize/u],
  ] as const)("names the keys of %s in training", async (_, where, advice) => {
    const { system, sampler, trainer } = assemble();
    const part = (where === "step" ? trainer.algorithm : sampler) as unknown as Record<string, unknown>;
    part[where] = () => {
      setAllocationLimit(1 << 20);
      try {
        tooLarge();
      } finally {
        setAllocationLimit(null);
      }
    };
    await expect(trainer.train()).rejects.toThrow(advice);
    trainer.dispose();
    system.dispose();
  });

  it("is the only error that gets advice", async () => {
    for (const error of [new TorchError("aten::add: shapes differ"), new Error("needs memory"), "text"]) {
      const run = withMemoryAdvice("update", () => {
        throw error;
      });
      await expect(run).rejects.toBe(error);
    }
    await expect(withMemoryAdvice("load", () => 7)).resolves.toBe(7);
  });

  it("names existing keys", () => {
    const keys = Object.values(MEMORY_ADVICE).flatMap(
      (text) => text.match(/[a-z]+(?:\.[*a-zA-Z]+)+/gu) ?? [],
    );
    expect(keys.length).toBeGreaterThan(8);
    for (const key of keys) {
      const path = key.replace("*", "tester").split(".");
      expect(keysAt(configurationJsonSchema(), path.slice(0, -1)), key).toContain(path.at(-1));
    }
  });
});

it("training whose gradients and optimizer state cannot fit is refused before any rollout", async () => {
  const { system, sampler, trainer } = assemble();
  const weights = [...system.parameters()].reduce((sum, parameter) => sum + parameter.numel(), 0);
  // A gradient and AdamW's two moments of each float32.
  expect(trainer.optimizer.bytesToCome()).toBe(3 * 4 * weights);
  const { limit } = availableMemory()!;
  trainer.optimizer.bytesToCome = () => 4 * limit;
  const rolloutMany = vi.spyOn(sampler, "rolloutMany");
  const bytes = (4 * limit).toLocaleString("en-US");
  await expect(trainer.train()).rejects.toThrow(
    new RegExp(
      `^training: gradients and the state of adamw need ${bytes} bytes .* to use less, .*models\\.lora`,
      "u",
    ),
  );
  expect(rolloutMany).not.toHaveBeenCalled();
  expect(trainer.step).toBe(0);
  trainer.dispose();
  system.dispose();
});
