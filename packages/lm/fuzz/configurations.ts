/**
 * Mutates the JSON files of tiny valid checkpoints and adapters (config.json, generation_config.json, the index of
 * shards, adapter_config.json) and loads them.
 *
 *     node --import tsx packages/lm/fuzz/configurations.ts --cases 10000 --seed 1
 */
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadCausalLM } from "../src/checkpoint.js";
import { LoRA } from "../src/adapters/lora.js";
import { checkpoints, contentOf, inCopy, loadAndRead } from "./checkpoint-folders.js";
import { fuzz } from "./harness.js";
import { mutatedFile } from "./mutate-json.js";

const INDEX = "model.safetensors.index.json";
const ADAPTER = "adapter_config.json";
const adapterFolder = join(checkpoints.get("gpt2")!, "..", "lora", "gpt2");
let base: Awaited<ReturnType<typeof loadCausalLM>>["model"];

await fuzz(import.meta.url, {
  name: "configurations",
  begin: async () => {
    ({ model: base } = await loadCausalLM(checkpoints.get("gpt2")!));
    return () => base.dispose();
  },
  runCase: async (random) => {
    if (random.once(8)) return mutateAdapter();
    const name = random.pick([...checkpoints.keys()]);
    const source = checkpoints.get(name)!;
    const file = random.once(6)
      ? "generation_config.json"
      : random.once(3) && name.includes("sharded")
        ? INDEX
        : "config.json";
    // Classifiers have no generation_config.json.
    const target = existsSync(join(source, file)) ? file : "config.json";
    const original = JSON.parse(contentOf(join(source, target)).toString()) as unknown;
    await inCopy(source, [target], async (folder) => {
      writeFileSync(join(folder, target), mutatedFile(original, random));
      await loadAndRead(name, folder);
    });

    async function mutateAdapter(): Promise<void> {
      const configuration = JSON.parse(contentOf(join(adapterFolder, ADAPTER)).toString()) as unknown;
      await inCopy(adapterFolder, [ADAPTER], async (folder) => {
        writeFileSync(join(folder, ADAPTER), mutatedFile(configuration, random));
        (await LoRA.load(folder, base.projections())).dispose();
      });
    }
  },
  namesPlace: (message) => message.includes("/fuzz-"),
});
