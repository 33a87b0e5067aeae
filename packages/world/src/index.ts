// Generator of the embedded world: its grammar, its labelled texts, and the models trained on them. These sources are
// run (`npx tsx`), never built or published; their outputs are in packages/assembly/world. No package depends on it.
export { SeededStream } from "./seeded-stream.js";
export { trainTokenizer, type TrainedTokenizer } from "./training/train-tokenizer.js";
