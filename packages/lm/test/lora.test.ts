import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync, cpSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { dispose, liveTensors, noGrad, scope } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { loadCausalLM, LoRA, saveCausalLM, tokenLogprobs, type CausalLM } from "../src/index.js";

// Adapters and values come from golden/make_lora.py (versions are in each expected.json).
const golden = fileURLToPath(new URL("golden", import.meta.url));
const bases = [
  { name: "gpt2", base: join(golden, "gpt2") },
  { name: "qwen3", base: join(golden, "families", "qwen3") },
];

interface Expected {
  rows: [number[], number[]][];
  logprobs: number[][];
}

const expectedOf = (name: string) =>
  JSON.parse(readFileSync(join(golden, "lora", name, "expected.json"), "utf8")) as Expected;
const rowsOf = ({ rows }: Expected) => rows.map(([context, continuation]) => ({ context, continuation }));
const scoresOf = (model: CausalLM, expected: Expected) =>
  scope(() => tokenLogprobs(model, rowsOf(expected)).toArray() as number[][]);

function largestGap(found: number[][], expected: number[][]): number {
  return Math.max(...expected.flatMap((row, i) => row.map((value, k) => Math.abs(value - found[i]![k]!))));
}

let before: number;
let folder: string;
beforeEach(() => {
  before = liveTensors();
  folder = mkdtempSync(join(tmpdir(), "lora-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
  expect(liveTensors()).toBe(before);
});

describe.each(bases)("an adapter of PEFT on $name", ({ name, base }) => {
  it("gives PEFT's log-probabilities, leaves the base unchanged, and is the same merged or saved again", async () => {
    const expected = expectedOf(name);
    const { model } = await loadCausalLM(base);
    const alone = scoresOf(model, expected);
    const adapter = await LoRA.load(join(golden, "lora", name), model.projections());
    const adapted = model.withAdapter(adapter);
    const found = scoresOf(adapted, expected);
    expect(largestGap(found, expected.logprobs)).toBeLessThan(2e-4);
    expect(largestGap(found, alone)).toBeGreaterThan(0.1);
    expect(scoresOf(model, expected)).toEqual(alone);

    await adapter.save(join(folder, "again"), { baseModel: name });
    const again = await LoRA.load(join(folder, "again"), model.projections());
    expect(scoresOf(model.withAdapter(again), expected)).toEqual(found);

    const merged = adapter.merged(model.namedParameters());
    noGrad(() => merged.forEach((weight, key) => void model.namedParameters().get(key)!.copy_(weight)));
    expect(largestGap(scoresOf(model, expected), expected.logprobs)).toBeLessThan(2e-4);
    dispose(merged);
    again.dispose();
    adapter.dispose();
    model.dispose();
  });
});

describe("a fresh adapter", () => {
  it("changes nothing, has only its own gradients, and depends on its seed", async () => {
    const expected = expectedOf("qwen3");
    const { model } = await loadCausalLM(bases[1]!.base);
    const configuration = { rank: 2, alpha: 4, targetModules: ["q_proj", "o_proj"] };
    const adapter = LoRA.create(model.projections(), configuration, { seed: 0 });
    const adapted = model.withAdapter(adapter);
    expect(scoresOf(adapted, expected)).toEqual(scoresOf(model, expected));

    scope(() => tokenLogprobs(adapted, rowsOf(expected)).sum().backward());
    for (const parameter of model.namedParameters().values()) expect(parameter.grad).toBeNull();
    const named = adapter.namedParameters();
    expect(named.size).toBe(2 * 2 * model.config.layers);
    // B is zero, so that A has no gradient yet, and B has one.
    for (const [key, parameter] of named) {
      const size = scope(() => parameter.grad!.abs().sum().item());
      if (key.endsWith("lora_A.weight")) expect(size).toBe(0);
      else expect(size).toBeGreaterThan(0);
    }

    const values = (made: LoRA) => [...made.namedParameters().values()].map((weight) => weight.toArray());
    const same = LoRA.create(model.projections(), configuration, { seed: 0 });
    const other = LoRA.create(model.projections(), configuration, { seed: 1 });
    expect(values(same)).toEqual(values(adapter));
    expect(values(other)).not.toEqual(values(adapter));
    for (const made of [adapter, same, other]) made.dispose();
    model.dispose();
  });

  it("applies dropout only while training", async () => {
    const expected = expectedOf("qwen3");
    const { model } = await loadCausalLM(bases[1]!.base);
    const loaded = await LoRA.load(join(golden, "lora", "qwen3"), model.projections());
    await loaded.save(join(folder, "dropping"), { baseModel: "qwen3" });
    loaded.dispose();
    const path = join(folder, "dropping", "adapter_config.json");
    writeFileSync(path, readFileSync(path, "utf8").replace('"lora_dropout": 0', '"lora_dropout": 0.5'));
    const adapter = await LoRA.load(join(folder, "dropping"), model.projections());
    const adapted = model.withAdapter(adapter);
    expect(largestGap(scoresOf(adapted, expected), expected.logprobs)).toBeLessThan(2e-4);
    adapter.training = true;
    expect(largestGap(scoresOf(adapted, expected), expected.logprobs)).toBeGreaterThan(1e-2);
    adapter.dispose();
    model.dispose();
  });

  it.each([
    [{ rank: 0, alpha: 1, targetModules: ["q_proj"] }, /rank must be an integer ≥ 1/],
    [{ rank: 2, alpha: NaN, targetModules: ["q_proj"] }, /alpha must be a number > 0/],
    [{ rank: 2, alpha: 1, targetModules: [] }, /at least one projection/],
    [{ rank: 2, alpha: 1, targetModules: ["c_attn"] }, /no projection "c_attn"; it has q_proj/],
    [{ rank: 2, alpha: 1, targetModules: ["q_proj"], dropout: 1 }, /dropout must be/],
  ])("refuses %j", async (configuration, message) => {
    const { model } = await loadCausalLM(bases[1]!.base);
    try {
      expect(() => LoRA.create(model.projections(), configuration, { seed: 0 })).toThrow(message);
      expect(() => LoRA.create(model.projections(), configuration, { seed: 0 })).toThrow(UsageError);
    } finally {
      model.dispose();
    }
  });

  it("refuses adapters of another kind or shape, by file and field", async () => {
    const { model } = await loadCausalLM(bases[1]!.base);
    const load = () => LoRA.load(folder, model.projections());
    const broken = (text: string, replacement: string) => {
      cpSync(join(golden, "lora", "qwen3"), folder, { recursive: true });
      const path = join(folder, "adapter_config.json");
      writeFileSync(path, readFileSync(path, "utf8").replace(text, replacement));
    };
    await expect(load()).rejects.toThrow(breaking("missing-configuration", "adapter_config.json"));
    broken('"LORA"', '"IA3"');
    await expect(load()).rejects.toThrow(breaking("unsupported-adapter", '"peft_type"'));
    broken('"r": 3', '"r": 4');
    await expect(load()).rejects.toThrow(breaking("shape-mismatch", "[3, 32]"));
    broken('"v_proj"', '"k_proj"');
    await expect(load()).rejects.toThrow(UsageError);
    model.dispose();
  });

  // Values for which PEFT computes something other than the low-rank term.
  it.each([
    ["use_dora", true],
    ["use_rslora", true],
    ["use_qalora", true],
    ["lora_bias", true],
    ["bias", "lora_only"],
    ["alora_invocation_tokens", [5, 9]],
    ["layer_replication", [[0, 2]]],
    ["rank_pattern", { q_proj: 2 }],
    ["alpha_pattern", { q_proj: 2 }],
    ["modules_to_save", ["lm_head"]],
    ["exclude_modules", "v_proj"],
    ["layers_to_transform", 0],
    ["trainable_token_indices", [1]],
    ["target_parameters", ["mlp.experts"]],
    ["arrow_config", { top_k: 2 }],
    ["kasa_config", { beta: 1 }],
    ["monteclora_config", { use: 1 }],
    ["use_bdlora", { nblocks: 2 }],
    ["init_lora_weights", "pissa"],
    ["init_lora_weights", "pissa_niter_16"],
    ["init_lora_weights", "olora"],
    ["init_lora_weights", "loftq"],
    ["init_lora_weights", "corda"],
    ["init_lora_weights", "lora_ga"],
    ["init_lora_weights", "mica"],
    ["a_key_of_tomorrow", "on"],
  ])("refuses adapters with %s: %j, by name", async (name, value) => {
    const { model } = await loadCausalLM(bases[1]!.base);
    await withSetting(name, value);
    await expect(LoRA.load(folder, model.projections())).rejects.toThrow(
      new RegExp(`adapter_config\\.json: "${name}" must be `, "u"),
    );
    model.dispose();
  });

  it.each([
    ["init_lora_weights", false],
    ["init_lora_weights", "gaussian"],
    ["init_lora_weights", "orthogonal"],
    ["init_lora_weights", "eva"],
    ["eva_config", { rho: 2 }],
    ["alora_invocation_tokens", null],
    ["a_key_of_tomorrow", []],
  ])("treats adapters with %s: %j as plain ones", async (name, value) => {
    const expected = expectedOf("qwen3");
    const { model } = await loadCausalLM(bases[1]!.base);
    await withSetting(name, value);
    const adapter = await LoRA.load(folder, model.projections());
    expect(largestGap(scoresOf(model.withAdapter(adapter), expected), expected.logprobs)).toBeLessThan(2e-4);
    adapter.dispose();
    model.dispose();
  });

  async function withSetting(name: string, value: unknown): Promise<void> {
    cpSync(join(golden, "lora", "qwen3"), folder, { recursive: true });
    const path = join(folder, "adapter_config.json");
    const settings = JSON.parse(readFileSync(path, "utf8")) as object;
    writeFileSync(path, JSON.stringify({ ...settings, [name]: value }));
  }
});

describe("the view of a model with an adapter", () => {
  it("is refused where its adapter would be ignored", async () => {
    const { model, tokenizer } = await loadCausalLM(bases[1]!.base);
    const adapter = await LoRA.load(join(golden, "lora", "qwen3"), model.projections());
    const view = model.withAdapter(adapter);
    expect(() => view.withAdapter(adapter)).toThrow(breaking("adapter-would-be-lost", "withAdapter:"));
    expect(() => view.copy("float32")).toThrow(breaking("adapter-would-be-lost", "copy:"));
    expect(() => model.copyFrom(view)).toThrow(breaking("adapter-would-be-lost", "copyFrom:"));
    await expect(saveCausalLM(join(folder, "saved"), view, tokenizer)).rejects.toThrow(
      breaking("adapter-would-be-lost", "saveCausalLM:"),
    );
    expect(existsSync(join(folder, "saved"))).toBe(false);
    adapter.dispose();
    model.dispose();
  });
});
