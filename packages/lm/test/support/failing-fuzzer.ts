import { UsageError } from "@astra-rl/base";
import { fuzz } from "../../fuzz/harness.js";

let at = 0;
const first = Number(process.argv[process.argv.lastIndexOf("--seed") + 1]);

/** Fails in each of the ways that a fuzzer must notice; its cases are seeds 1 to 6. */
await fuzz(import.meta.url, {
  name: "failing",
  begin: async () => {
    at = first - 1;
    return () => {};
  },
  runCase: async () => {
    at++;
    if (at === 2) throw new TypeError("raw");
    if (at === 3) throw new UsageError("out-of-range", "nowhere");
    if (at === 4) process.exit(7);
    if (at === 5) throw new UsageError("out-of-range", "internal: here");
    if (at === 6) throw new UsageError("out-of-range", "here: a rule");
  },
  namesPlace: (message) => message.includes("here:"),
});
