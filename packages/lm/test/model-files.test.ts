import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { cp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { liveTensors, noGrad, scope } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { ChatTemplate } from "../src/chat-template.js";
import { loadCausalLM, loadSequenceClassifier } from "../src/checkpoint.js";
import { tokenLogprobs } from "../src/logprobs.js";
import { LoRA } from "../src/adapters/lora.js";
import { Tokenizer } from "../src/tokenizer.js";
import { goldenCausal, goldenFamilies } from "./golden/families.js";
import { goldenFolder } from "./golden/gpt2.js";
import { parseSafetensors, renderSafetensors } from "./safetensors-bytes.js";

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "model-files-"))));
afterEach(() => rmSync(folder, { recursive: true }));

const familyFolder = (name: string) =>
  name === "gpt2" ? goldenFolder : goldenFamilies.find((family) => family.name === name)!.folder;
const path = (name: string) => join(folder, name);
function edit(name: string, changes: Record<string, unknown>): void {
  const value = JSON.parse(readFileSync(path(name), "utf8")) as Record<string, unknown>;
  writeFileSync(path(name), JSON.stringify({ ...value, ...changes }));
}

async function expectRefusal(message: RegExp, load: () => Promise<unknown> = () => loadCausalLM(folder)) {
  const live = liveTensors();
  const begin = process.cpuUsage();
  const error = await load().then(
    () => null,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(UsageError);
  expect((error as UsageError).message).toMatch(message);
  expect(liveTensors()).toBe(live);
  // Nothing is allocated for declared sizes: microseconds of processor time.
  const { user, system } = process.cpuUsage(begin);
  expect(user + system).toBeLessThan(3e6);
}

describe("sizes in config.json", () => {
  it.each([
    ["gpt2", "n_layer", 2 ** 31],
    ["gpt2", "n_layer", 2 ** 53 - 1],
    ["llama2", "num_hidden_layers", 2 ** 31],
    ["mistral", "num_hidden_layers", 2 ** 31],
    ["qwen2", "num_hidden_layers", 2 ** 31],
    ["qwen3", "num_hidden_layers", 2 ** 40],
    ["bert", "num_hidden_layers", 2 ** 31],
  ])("of %s: %s of %d is compared with the weights before any allocation", async (family, key, layers) => {
    await cp(familyFolder(family), folder, { recursive: true });
    edit("config.json", { [key]: layers, layer_types: null });
    const load = () => (family === "bert" ? loadSequenceClassifier(folder) : loadCausalLM(folder));
    const wanted = `config\\.json: "${key}" must be the number of layers whose tensors are there \\(2\\), but it is ${layers}$`;
    await expectRefusal(new RegExp(wanted), load);
  });

  it.each<[string, string, RegExp]>([
    ["gpt2", "vocab_size", /wte\.weight must have shape \[\d+, 40\] according to .*config\.json/],
    ["gpt2", "n_positions", /wpe\.weight must have shape/],
    ["gpt2", "n_embd", /must have shape/],
    ["gpt2", "n_inner", /c_fc\.\w+ must have shape/],
    ["llama2", "hidden_size", /must have shape/],
    ["llama2", "intermediate_size", /must have shape/],
    ["llama2", "num_attention_heads", /must have shape/],
    ["llama2", "num_key_value_heads", /"num_key_value_heads" must be a divisor/],
    ["llama2", "head_dim", /must have shape/],
    ["llama2", "vocab_size", /must have shape/],
    ["qwen3", "head_dim", /must have shape/],
  ])("of %s: %s is compared with the weights before any allocation", async (family, key, message) => {
    for (const value of [2 ** 31, 2 ** 52]) {
      await cp(familyFolder(family), folder, { recursive: true });
      edit("config.json", key === "num_attention_heads" ? { [key]: value, head_dim: 8 } : { [key]: value });
      await expectRefusal(message);
    }
  });

  it("without a tensor cost only what is used: a context window of 2^50 tokens", async () => {
    await cp(familyFolder("llama2"), folder, { recursive: true });
    const rows = goldenCausal
      .find(({ name }) => name === "llama2")!
      .expected.pairs.map(({ contextIds, continuationIds }) => ({
        context: contextIds,
        continuation: continuationIds,
      }));
    const score = async () => {
      const { model } = await loadCausalLM(folder);
      const values = noGrad(() => scope(() => tokenLogprobs(model, rows).toArray()));
      model.dispose();
      return values;
    };
    const expected = await score();
    edit("config.json", { max_position_embeddings: 2 ** 50 });
    expect(await score()).toEqual(expected);
  });
});

describe("ids in config.json", () => {
  it.each(["gpt2", "llama2", "qwen2"])("of %s are ignored outside the vocabulary", async (family) => {
    await cp(familyFolder(family), folder, { recursive: true });
    rmSync(path("generation_config.json"));
    const { model, generation, tokenizer } = await loadCausalLM(folder);
    model.dispose();
    edit("config.json", { bos_token_id: 10 ** 9, eos_token_id: [10 ** 9], pad_token_id: 10 ** 9 });
    const changed = await loadCausalLM(folder);
    changed.model.dispose();
    const one = (id: number | null) => (id === null ? [] : [id]);
    expect(changed.generation).toEqual({
      bosId: tokenizer.bosId,
      eosIds: one(tokenizer.eosId),
      padId: tokenizer.padId,
    });
    expect(generation.eosIds).toEqual(changed.generation.eosIds);
  });
});

describe("a JSON file of a checkpoint", () => {
  beforeEach(() => cp(goldenFolder, folder, { recursive: true }));

  it.each(["config.json", "generation_config.json"])("%s is not read if it is too large", async (name) => {
    truncateSync(path(name), 2 ** 31 + 5);
    await expectRefusal(new RegExp(`${name}: must have at most 268435456 bytes, but it has 2147483653`));
  });

  it.each(["config.json", "generation_config.json", "tokenizer_config.json"])(
    "%s may not be nested too deeply",
    async (name) => {
      writeFileSync(path(name), `{"a": ${"[".repeat(100_000)}${"]".repeat(100_000)}}`);
      await expectRefusal(new RegExp(`${name}: must be nested at most 100 deep`));
      writeFileSync(path(name), `{"a": "${"[".repeat(1000)}\\"${"{".repeat(1000)}", "architectures": 3}`);
      await loadCausalLM(folder).then(
        ({ model }) => model.dispose(),
        (error: Error) => expect(error.message).not.toMatch(/nested/),
      );
    },
  );

  it("must not be a pipe, which would block, or a folder", async () => {
    rmSync(path("config.json"));
    execFileSync("mkfifo", [path("config.json")]);
    await expectRefusal(/config\.json: must be a file/);
    rmSync(path("config.json"));
    symlinkSync(".", path("config.json"));
    await expectRefusal(/config\.json: must be a file/);
    rmSync(path("config.json"));
    symlinkSync("config.json", path("config.json"));
    await expectRefusal(/config\.json: cannot be read/);
  });

  it("must be UTF-8", async () => {
    const text = readFileSync(path("config.json"), "utf8");
    writeFileSync(path("config.json"), Buffer.from(text, "utf16le"));
    await expectRefusal(/config\.json: must be a JSON file/);
  });

  it("cannot change other objects' prototypes", async () => {
    const text = readFileSync(path("config.json"), "utf8").trimEnd();
    writeFileSync(
      path("config.json"),
      `{"__proto__": {"polluted": 1, "n_inner": 3}, "constructor": {"prototype": {"polluted": 1}}, ${text.slice(1)}`,
    );
    const { model } = await loadCausalLM(folder);
    expect(({} as Record<string, unknown>)["polluted"]).toBeUndefined();
    model.dispose();
  });

  it("must name architectures as texts", async () => {
    edit("config.json", { architectures: [["GPT2LMHeadModel"]], model_type: "x" });
    await expectRefusal(/config\.json: the architecture must be one of/);
  });
});

describe("other files of a model", () => {
  it("config.json of a classifier must name a known type", async () => {
    await cp(familyFolder("bert"), folder, { recursive: true });
    for (const model_type of ["constructor", "__proto__", "gpt2"]) {
      edit("config.json", { model_type });
      await expectRefusal(
        /config\.json: "model_type" must be one of bert, roberta, xlm-roberta, distilbert/,
        () => loadSequenceClassifier(folder),
      );
    }
  });

  it("config.json must give two different wavelengths for scaled rotary positions", async () => {
    await cp(familyFolder("llama32-new-spelling"), folder, { recursive: true });
    const { rope_parameters } = JSON.parse(readFileSync(path("config.json"), "utf8")) as {
      rope_parameters: Record<string, unknown>;
    };
    edit("config.json", { rope_parameters: { ...rope_parameters, high_freq_factor: 1 } });
    await expectRefusal(/"high_freq_factor" must be greater than low_freq_factor \(1\), but it is 1/);
  });

  it("the index of shards must name plain files", async () => {
    await cp(familyFolder("llama3-sharded"), folder, { recursive: true });
    const index = "model.safetensors.index.json";
    edit(index, { weight_map: { "lm_head.weight": "a\0.safetensors" } });
    await expectRefusal(/index\.json: each tensor's file must be the name of a \.safetensors file/);
    edit(index, { weight_map: { "lm_head.weight": `${"x".repeat(300)}.safetensors` } });
    await expectRefusal(/x{300}\.safetensors: cannot be read \(ENAMETOOLONG\)/);
  });

  it("chat_template.jinja must be UTF-8, and special tokens must be texts", async () => {
    await cp(familyFolder("llama3-sharded"), folder, { recursive: true });
    writeFileSync(path("chat_template.jinja"), Uint8Array.of(0x61, 0xff));
    const tokenizer = await Tokenizer.load(folder);
    expect(() => ChatTemplate.of(tokenizer)).toThrow(breaking("not-utf8", "chat_template.jinja"));
    writeFileSync(path("chat_template.jinja"), "{{ bos_token }}");
    edit("tokenizer_config.json", { bos_token: { content: { toString: 1 } } });
    await expect(Tokenizer.load(folder)).rejects.toThrow(
      breaking("invalid-added-token", 'tokenizer_config.json: "bos_token"'),
    );
  });

  describe("adapter_config.json", () => {
    const load = async () => {
      const { model } = await loadCausalLM(familyFolder("llama2"));
      try {
        (await LoRA.load(folder, model.projections())).dispose();
      } finally {
        model.dispose();
      }
    };
    beforeEach(async () => {
      const { model } = await loadCausalLM(familyFolder("llama2"));
      const configuration = { rank: 2, alpha: 4, targetModules: ["q_proj"] };
      const adapter = LoRA.create(model.projections(), configuration, { seed: 1 });
      await adapter.save(folder, { baseModel: "x" });
      adapter.dispose();
      model.dispose();
    });

    it.each<[string, unknown, RegExp]>([
      ["lora_dropout", [], /"lora_dropout" must be a number/],
      ["lora_dropout", "0.1", /"lora_dropout" must be a number/],
      ["rank_pattern", 5, /"rank_pattern" must be left out, off or empty/],
      ["alpha_pattern", "x", /"alpha_pattern" must be left out, off or empty/],
      ["r", 2 ** 52, /must have shape \[4503599627370496, 32\]/],
    ])("%s of %j", async (key, value, message) => {
      await load();
      edit("adapter_config.json", { [key]: value });
      await expectRefusal(message, load);
    });

    it("may name a module any number of times", async () => {
      edit("adapter_config.json", { target_modules: Array<string>(1_000_000).fill("q_proj") });
      await expect(load()).resolves.toBeUndefined();
    });

    it("must store floating-point numbers", async () => {
      const weights = path("adapter_model.safetensors");
      const tensors = parseSafetensors(readFileSync(weights));
      for (const tensor of tensors.values()) tensor.dtype = "I32";
      writeFileSync(weights, renderSafetensors(tensors));
      // Without our digests: with them it would be refused before it is read.
      rmSync(path("SHA256SUMS"));
      await expectRefusal(
        /adapter_model\.safetensors: tensor .* must be stored as one of float32, .* but it is int32/,
        load,
      );
    });
  });
});
