import { describe, it } from "vitest";
import { expectNoFailures } from "./expect-no-failures.js";

// What runs our own loops, which differ between instruction sets.
describe("fuzzers", () => {
  it.each([
    ["kernels", 1500],
    ["allocations", 150],
  ])("%s: %i cases, none of which crashes, hangs or breaks a rule", expectNoFailures, 180_000);
});
