// The policy: a model that speaks, and weights that training changes. It must not know systems, rewards or algorithms.
export { FullWeights } from "./full-weights.js";
export { FrozenWeights } from "./frozen-weights.js";
export { LocalTester, type LocalTesterOptions } from "./local-tester.js";
export { LoRAWeights, type LoRAOptions } from "./lora-weights.js";
export { TesterWeights } from "./tester-weights.js";
