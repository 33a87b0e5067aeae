/** Cases that fail in every possible way, so that a test can check that each is reported. */
import type { Fuzzer, Outcome } from "./harness.js";

export const itself: Fuzzer = {
  about: "hangs, crashes and broken rules, to test the harness",

  run(_, tell, index): Outcome {
    tell(`case ${index} is about to happen`);
    if (index === 2) for (;;);
    if (index === 5) process.kill(process.pid, "SIGSEGV");
    if (index === 9) throw new Error("a rule is broken");
    return { refused: index % 4 === 0 ? "a multiple of four" : null };
  },
};
