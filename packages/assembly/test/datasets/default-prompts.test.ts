import { UsageError } from "@astra-rl/base";
import { describe, expect, it } from "vitest";
import { defaultPrompts } from "../../src/embedded/index.js";

describe("defaultPrompts", () => {
  it("lists the splits for an unknown one", async () => {
    await expect(defaultPrompts("validation" as "dev")).rejects.toThrow(
      /train, dev, test, got "validation"/u,
    );
    await expect(defaultPrompts("validation" as "dev")).rejects.toBeInstanceOf(UsageError);
  });
});
