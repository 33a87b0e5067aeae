import { UsageError } from "@astra-rl/torch";
import { describe, expect, it } from "vitest";
import { defaultPrompts } from "../../src/datasets/index.js";

describe("defaultPrompts", () => {
  it("lists the splits for an unknown one", async () => {
    await expect(defaultPrompts("validation" as "dev")).rejects.toThrow(
      /train, dev, test, got "validation"/u,
    );
    await expect(defaultPrompts("validation" as "dev")).rejects.toBeInstanceOf(UsageError);
  });
});
