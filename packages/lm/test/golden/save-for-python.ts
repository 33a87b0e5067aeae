// Saves checkpoints of every causal family with numbers that this package computes from them, for check_saved.py:
//
//     npx tsx packages/lm/test/golden/save-for-python.ts FOLDER && python packages/lm/test/golden/check_saved.py FOLDER
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { noGrad, scope } from "@astra-rl/torch";
import { initializeGPT2, loadCausalLM, saveCausalLM, tokenLogprobs, type CausalLM } from "@astra-rl/lm";
import { goldenCausal } from "./families.js";
import { golden, goldenFolder } from "./gpt2.js";

const root = process.argv[2];
if (root === undefined) throw new Error("save-for-python: give a folder to write into");
mkdirSync(root, { recursive: true });

const texts = golden.logprobs.filter((row) => row.context !== "" && row.continuation !== "");
const changed = (model: CausalLM) =>
  noGrad(() => model.namedParameters().forEach((parameter) => void parameter.mul_(0.9)));

for (const { name, folder } of [{ name: "gpt2", folder: goldenFolder }, ...goldenCausal]) {
  const { model, tokenizer } = await loadCausalLM(folder);
  changed(model);
  await save(name, model, tokenizer);
  if (name === "gpt2") {
    const sizes = { vocabSize: 320, contextLength: 64, hiddenSize: 48, layers: 3, heads: 6, bosId: 0, eosId: 0 };
    await save("initialized", initializeGPT2(sizes, 3), tokenizer);
  }
}

async function save(
  name: string,
  model: CausalLM,
  tokenizer: Awaited<ReturnType<typeof loadCausalLM>>["tokenizer"],
): Promise<void> {
  const folder = join(root!, name);
  await saveCausalLM(folder, model, tokenizer);
  const window = Math.min(48, model.config.contextLength);
  const rows = texts.map((row) => ({
    context: tokenizer.encode(row.context).slice(-window / 2),
    continuation: tokenizer.encode(row.continuation).slice(0, window / 2),
  }));
  const logprobs = noGrad(() => scope(() => tokenLogprobs(model, rows).toArray()));
  writeFileSync(join(folder, "ours.json"), JSON.stringify({ rows, logprobs }));
  model.dispose();
}
