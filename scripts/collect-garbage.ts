import { setImmediate } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

// Before each file of a process that several share: tensors that an earlier one left to the garbage collector are freed, so that
// tests can count those that live.
setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;
for (let turn = 0; turn < 2; turn += 1) {
  collect();
  await setImmediate();
}
