// The policy: a model that generates probes, and its trainable weights. Must not depend on systems, rewards or
// algorithms.
export { FullWeights } from "./full-weights.js";
export { FrozenWeights } from "./frozen-weights.js";
export { LocalTester, type LocalTesterOptions } from "./local-tester.js";
export { LoRAWeights, type LoRAOptions } from "./lora-weights.js";
export { ReplayTester } from "./replay-tester.js";
export { TesterWeights } from "./tester-weights.js";
