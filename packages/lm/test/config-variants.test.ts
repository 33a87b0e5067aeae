import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { noGrad, scope } from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { loadCausalLM } from "../src/checkpoint.js";
import { tokenLogprobs } from "../src/logprobs.js";
import { goldenCausal } from "./golden/families.js";
import { parseSafetensors, renderSafetensors, type RawTensor } from "./safetensors-bytes.js";

/** One case of make_variants.py. */
interface Variant {
  name: string;
  family: string;
  changed: Record<string, unknown>;
  removed: string[];
  layers?: number;
  length?: number;
  logprobs: number[];
}

const { cases } = JSON.parse(
  readFileSync(new URL("golden/variants-expected.json", import.meta.url), "utf8"),
) as { cases: Variant[] };

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "variants-"))));
afterEach(() => rmSync(folder, { recursive: true }));

/** The family's checkpoint with another config.json; layer i has the weights of layer i mod 2. */
async function checkpoint({ family, changed, removed, layers = 2 }: Omit<Variant, "logprobs">) {
  await cp(goldenCausal.find(({ name }) => name === family)!.folder, folder, { recursive: true });
  const path = join(folder, "config.json");
  const config = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
  Object.assign(config, changed, { num_hidden_layers: layers });
  for (const key of removed) delete config[key];
  writeFileSync(path, JSON.stringify(config));
  if (layers === 2) return;
  const weights = join(folder, "model.safetensors");
  const repeated = new Map<string, RawTensor>();
  for (const [name, tensor] of parseSafetensors(readFileSync(weights))) {
    const [, number, rest] = /^model\.layers\.(\d)\.(.*)$/.exec(name) ?? [];
    if (number === undefined) repeated.set(name, tensor);
    else
      for (let layer = Number(number); layer < layers; layer += 2)
        repeated.set(`model.layers.${layer}.${rest}`, tensor);
  }
  writeFileSync(weights, renderSafetensors(repeated));
}

describe("config.json", () => {
  it.each(cases)("of $family, read as in transformers: $name", async (given) => {
    await checkpoint(given);
    const { model } = await loadCausalLM(folder);
    const { length = 40, logprobs } = given;
    const ids = Array.from({ length }, (_, at) => (7 * at * at + 3 * at) % 331);
    const cut = length - logprobs.length;
    const rows = [{ context: ids.slice(0, cut), continuation: ids.slice(cut) }];
    const values = noGrad(() => scope(() => tokenLogprobs(model, rows).toArray())) as number[][];
    model.dispose();
    const worst = Math.max(...logprobs.map((value, at) => Math.abs(value - values[0]![at]!)));
    expect(worst).toBeLessThan(2e-4);
  });

  it("must be one where layer_types names one", async () => {
    const layer_types = ["sliding_attention", "full_attention"];
    await checkpoint({ name: "", family: "qwen2", changed: { layer_types }, removed: [] });
    await expect(loadCausalLM(folder)).rejects.toThrow(
      /config\.json: "layer_types" must be "full_attention" in every layer where no sliding window is used/,
    );
  });
});
