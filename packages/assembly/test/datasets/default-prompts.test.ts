import { UsageError } from "@astra-rl/base";
import { describe, expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import { defaultPrompts } from "../../src/embedded/index.js";

describe("defaultPrompts", () => {
  it("lists the splits for an unknown one", async () => {
    await expect(defaultPrompts("validation" as "dev")).rejects.toThrow(
      breaking("unknown-choice", '"validation"'),
    );
    await expect(defaultPrompts("validation" as "dev")).rejects.toBeInstanceOf(UsageError);
  });
});
