// The maker of the embedded world: its grammar, its labelled texts, and what is trained on them. Sources that are run
// (`npx tsx`), never built or published; what they make lies in packages/assembly/world. Nothing of the packages knows it.
export { SeededStream } from "./seeded-stream.js";
export { trainTokenizer, type TrainedTokenizer } from "./training/train-tokenizer.js";
