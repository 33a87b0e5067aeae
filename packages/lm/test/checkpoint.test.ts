import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { liveTensors, noGrad, scope, type Tensor } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import type { CausalLM } from "../src/causal-lm.js";
import { loadCausalLM, saveCausalLM } from "../src/checkpoint.js";
import { tokenLogprobs } from "../src/logprobs.js";
import { golden, goldenFolder } from "./golden/gpt2.js";
import { parseSafetensors, renderSafetensors, type RawTensor } from "./safetensors-bytes.js";

const rows = golden.logprobs.map(({ contextIds, continuationIds }) => ({
  context: contextIds,
  continuation: continuationIds,
}));
const score = (model: CausalLM) => noGrad(() => scope(() => tokenLogprobs(model, rows).toArray()));

let root: string;
/** A fresh copy of the golden checkpoint. */
let folder: string;
let before: number;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "checkpoint-"));
  before = liveTensors();
});
afterAll(async () => {
  expect(liveTensors()).toBe(before);
  await rm(root, { recursive: true, force: true });
});
beforeEach(async () => {
  folder = await mkdtemp(join(root, "copy-"));
  await cp(goldenFolder, folder, { recursive: true });
});

async function editJson(name: string, change: (value: Record<string, unknown>) => void): Promise<void> {
  const path = join(folder, name);
  const value = JSON.parse(await readFile(path, "utf8")) as Record<string, unknown>;
  change(value);
  await writeFile(path, JSON.stringify(value));
}
const editConfig = (changes: Record<string, unknown>) =>
  editJson("config.json", (config) => Object.assign(config, changes));
async function editWeights(change: (tensors: Map<string, RawTensor>) => Map<string, RawTensor> | void) {
  const path = join(folder, "model.safetensors");
  const tensors = parseSafetensors(await readFile(path));
  await writeFile(path, renderSafetensors(change(tensors) ?? tensors));
}

async function expectRefusal(message: RegExp): Promise<void> {
  const live = liveTensors();
  const error = await loadCausalLM(folder).then(
    ({ model }) => {
      model.dispose();
      return null;
    },
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(UsageError);
  const text = (error as UsageError).message;
  expect(text).toMatch(message);
  expect(text).not.toContain("\n");
  expect(text).toContain(folder);
  expect(liveTensors()).toBe(live);
}

describe("loadCausalLM", () => {
  it("reads a checkpoint without the transformer prefix, with buffers and the tied output stored again", async () => {
    const reference = await loadCausalLM(goldenFolder);
    await editWeights((tensors) => {
      const renamed = new Map([...tensors].map(([key, raw]) => [key.replace(/^transformer\./, ""), raw]));
      renamed.set("h.0.attn.bias", { dtype: "U8", shape: [1, 1, 2, 2], data: Uint8Array.of(1, 0, 1, 1) });
      renamed.set("lm_head.weight", tensors.get("transformer.wte.weight")!);
      renamed.set("score.weight", { dtype: "F32", shape: [1], data: new Uint8Array(4) });
      return renamed;
    });
    await editConfig({ architectures: ["GPT2Model"] });
    const { model, unusedTensors } = await loadCausalLM(folder);
    expect(score(model)).toEqual(score(reference.model));
    expect(unusedTensors).toEqual(["score.weight"]);
    expect([...model.namedParameters().keys()]).toEqual([...reference.model.namedParameters().keys()]);
    model.dispose();
    reference.model.dispose();
  });

  it("reads a separate output projection if the configuration unties it", async () => {
    const reference = await loadCausalLM(goldenFolder);
    await editConfig({ tie_word_embeddings: false });
    await expectRefusal(/1 are missing: lm_head\.weight/);
    await editWeights((tensors) => {
      tensors.set("lm_head.weight", tensors.get("transformer.wte.weight")!);
    });
    const { model } = await loadCausalLM(folder);
    expect(model.namedParameters().has("lm_head.weight")).toBe(true);
    expect(score(model)).toEqual(score(reference.model));
    model.dispose();
    reference.model.dispose();
  });

  it("converts to the requested type", async () => {
    for (const dtype of ["bfloat16", "float64"] as const) {
      const { model } = await loadCausalLM(folder, { dtype });
      expect(model).toMatchObject({ dtype, computeDtype: dtype, device: "cpu" });
      expect([...model.namedParameters().values()].every((tensor) => tensor.dtype === dtype)).toBe(true);
      model.dispose();
    }
  });

  it("determines the ids that begin and end a text: generation_config.json, then config.json, then the tokenizer", async () => {
    const idsNow = async () => {
      const { model, generation } = await loadCausalLM(folder);
      model.dispose();
      expect(generation.eosIds).toEqual(model.config.eosIds);
      return generation;
    };
    expect(await idsNow()).toEqual({ bosId: 0, eosIds: [0], padId: null });
    await editConfig({ eos_token_id: 5, bos_token_id: 6, pad_token_id: 7 });
    await editJson("generation_config.json", (config) =>
      Object.assign(config, { eos_token_id: [3, 4], bos_token_id: null }),
    );
    expect(await idsNow()).toEqual({ bosId: 6, eosIds: [3, 4], padId: 7 });
    await rm(join(folder, "generation_config.json"));
    expect(await idsNow()).toEqual({ bosId: 6, eosIds: [5], padId: 7 });
    // 50256 is the default of this family's configuration, for any vocabulary.
    await editConfig({ eos_token_id: 50256, bos_token_id: null, pad_token_id: null });
    expect(await idsNow()).toEqual({ bosId: 0, eosIds: [0], padId: null });
  });
});

describe("loadCausalLM refuses", () => {
  it("a missing folder, and a file in its place", async () => {
    await rm(folder, { recursive: true });
    await expectRefusal(/there is no such folder/);
    await writeFile(folder, "");
    await expectRefusal(/is a folder, but this is a file/);
  });

  it.each([
    ["config.json", /config\.json: a checkpoint needs this file/],
    ["tokenizer.json", /a tokenizer needs tokenizer\.json, but there is none/],
    ["model.safetensors", /must be in model\.safetensors or pytorch_model\.bin .*, but there is neither/],
  ])("a checkpoint without %s", async (name, message) => {
    await rm(join(folder, name));
    await expectRefusal(message);
  });

  it("pickled weights that contain something other than tensors", async () => {
    await rm(join(folder, "model.safetensors"));
    await writeFile(join(folder, "pytorch_model.bin"), "");
    await expectRefusal(/pytorch_model\.bin: cannot be read as a state_dict of PyTorch: it is neither/);
    // sys.exit, which Python's unpickler would resolve.
    const code = Buffer.from("8002637379730a657869740a2e", "hex");
    await writeFile(join(folder, "pytorch_model.bin"), code);
    await expectRefusal(
      /pytorch_model\.bin: .* it names sys\.exit, which is nothing that weights are made of$/,
    );
  });

  it("weights in another format", async () => {
    await rm(join(folder, "model.safetensors"));
    await writeFile(join(folder, "tf_model.h5"), "");
    await expectRefusal(/tf_model\.h5 is in a format that is not supported/);
  });

  it.each([["config.json"], ["tokenizer.json"], ["tokenizer_config.json"], ["generation_config.json"]])(
    "%s that is not JSON, or not an object",
    async (name) => {
      await writeFile(join(folder, name), '{"a": ');
      await expectRefusal(new RegExp(`${name}: must be a JSON file`));
      await writeFile(join(folder, name), "[]");
      await expectRefusal(new RegExp(`${name}: must hold a JSON object`));
    },
  );

  it.each<[string, Record<string, unknown>, RegExp]>([
    [
      "a missing size",
      { n_embd: undefined },
      /config\.json: "n_embd" must be an integer of at least 1, but it is missing/,
    ],
    ["a size that is text", { n_layer: "two" }, /"n_layer" must be an integer .*, but it is "two"/],
    ["a size that is not an integer", { vocab_size: 320.5 }, /"vocab_size" must be .*, but it is 320\.5/],
    ["a negative size", { n_positions: -64 }, /"n_positions" must be .*, but it is -64/],
    [
      "heads that do not divide the size",
      { n_head: 3 },
      /"n_head" must be a divisor of "n_embd" \(40\), but it is 3/,
    ],
    [
      "an unknown activation",
      { activation_function: "swish2" },
      /one of those supported \(gelu_new, .*\), but it is "swish2"/,
    ],
    ["cross-attention", { add_cross_attention: true }, /only decoders on their own/],
    ["an epsilon of 0", { layer_norm_epsilon: 0 }, /"layer_norm_epsilon" must be a number greater than 0/],
    [
      "an id of the wrong type",
      { eos_token_id: "end" },
      /"eos_token_id" must be a token id or a list of token ids, but it is "end"/,
    ],
    [
      "a flag that is not a boolean",
      { tie_word_embeddings: "yes" },
      /must be true or false, but it is "yes"/,
    ],
    [
      "an architecture that is not supported, listing those that are",
      { architectures: ["MambaForCausalLM"] },
      /must be one of GPT2LMHeadModel, .*LlamaForCausalLM.*, but it is \["MambaForCausalLM"\]/,
    ],
    [
      "no architecture at all",
      { architectures: null, model_type: "x" },
      /must be one of GPT2LMHeadModel.* model_type "x"/,
    ],
    [
      "a vocabulary smaller than the tokenizer's",
      { vocab_size: 319 },
      /ids up to 319 and config\.json has "vocab_size" 319/,
    ],
    [
      "a vocabulary that is not the embedding's",
      { vocab_size: 400 },
      /transformer\.wte\.weight must have shape \[400, 40\] .* has \[320, 40\]/,
    ],
    [
      "more layers than there are",
      { n_layer: 3 },
      /must hold the 40 tensors .* but 12 are missing: transformer\.h\.2\.ln_1\.weight/,
    ],
    [
      "fewer layers than there are",
      { n_layer: 1 },
      /number of layers must be that of .*config\.json \(1\), but there is a tensor transformer\.h\.1\./,
    ],
  ])("%s in the configuration", async (_, changes, message) => {
    await editConfig(changes);
    await expectRefusal(message);
  });

  it("weights that are truncated anywhere", async () => {
    const path = join(folder, "model.safetensors");
    const whole = await readFile(path);
    for (const size of [whole.length - 1, whole.length - 100_000, 3000, 100, 8, 7, 0]) {
      await writeFile(path, whole);
      await truncate(path, size);
      await expectRefusal(/model\.safetensors: /);
    }
  });

  it("weights with a header damaged in a thousand ways, without a crash", async () => {
    const path = join(folder, "model.safetensors");
    const whole = await readFile(path);
    const length = Number(whole.readBigUInt64LE(0));
    let state = 12345;
    const random = (limit: number) => (state = (state * 1103515245 + 12345) % 2147483648) % limit;
    for (let round = 0; round < 1000; round++) {
      const bytes = Buffer.from(whole);
      for (let times = random(4) + 1; times > 0; times--) bytes[random(8 + length)] = random(256);
      await writeFile(path, bytes);
      const live = liveTensors();
      try {
        (await loadCausalLM(folder)).model.dispose();
      } catch (error) {
        expect(error).toBeInstanceOf(UsageError);
        expect((error as UsageError).message).toContain("model.safetensors");
      }
      expect(liveTensors()).toBe(live);
    }
  });

  it.each<[string, (tensors: Map<string, RawTensor>) => void, RegExp]>([
    [
      "a missing tensor",
      (tensors) => tensors.delete("transformer.h.1.mlp.c_fc.bias"),
      /must hold the 28 tensors .*config\.json asks for, but 1 are missing: transformer\.h\.1\.mlp\.c_fc\.bias/,
    ],
    [
      "a tensor of another shape",
      (tensors) => (tensors.get("transformer.h.0.attn.c_attn.weight")!.shape = [120, 40]),
      /c_attn\.weight must have shape \[40, 120\] according to .*, but it has \[120, 40\]/,
    ],
    [
      "a tensor of integers",
      (tensors) => (tensors.get("transformer.ln_f.bias")!.dtype = "I32"),
      /ln_f\.bias must be stored as one of float32, .* but it is int32/,
    ],
    [
      "two tensors for one parameter",
      (tensors) => tensors.set("ln_f.bias", tensors.get("transformer.ln_f.bias")!),
      /are the same parameter/,
    ],
  ])("%s", async (_, change, message) => {
    await editWeights((tensors) => {
      change(tensors);
    });
    await expectRefusal(message);
  });

  it("a tokenizer with more tokens than the model has embeddings", async () => {
    await editJson("tokenizer.json", (json) => {
      (json["added_tokens"] as unknown[]).push({
        id: 320,
        content: "<extra>",
        special: true,
        normalized: false,
      });
    });
    await expectRefusal(
      /tokenizer\.json: every token must have an embedding, but the tokenizer gives ids up to 320/,
    );
  });
});

describe("sharded weights", () => {
  const index = "model.safetensors.index.json";
  /** Splits the weights into two files with an index. */
  async function shard(change: (map: Record<string, unknown>) => unknown = () => {}): Promise<void> {
    const tensors = [...parseSafetensors(await readFile(join(folder, "model.safetensors")))];
    await rm(join(folder, "model.safetensors"));
    const map: Record<string, unknown> = {};
    for (const [name, part] of [
      ["model-1.safetensors", tensors.slice(0, 10)],
      ["model-2.safetensors", tensors.slice(10)],
    ] as const) {
      await writeFile(join(folder, name), renderSafetensors(new Map(part)));
      for (const [key] of part) map[key] = name;
    }
    await writeFile(join(folder, index), JSON.stringify({ weight_map: change(map) ?? map }));
  }

  it("are the same model", async () => {
    const reference = await loadCausalLM(goldenFolder);
    await shard();
    const { model } = await loadCausalLM(folder);
    expect(score(model)).toEqual(score(reference.model));
    model.dispose();
    reference.model.dispose();
  });

  it.each<[string, (map: Record<string, unknown>) => unknown, RegExp]>([
    ["a map that is none", () => 3, /index\.json: "weight_map" must be an object/],
    [
      "a file outside the folder",
      (map) => void (map["transformer.wpe.weight"] = "../model-1.safetensors"),
      /must be the name of a \.safetensors file in the same folder, .* "\.\.\/model-1/,
    ],
    [
      "a file that is not there",
      (map) => void (map["transformer.wpe.weight"] = "model-3.safetensors"),
      /model-3\.safetensors: /,
    ],
    [
      "a tensor in the wrong file",
      (map) => void (map["nobody"] = "model-2.safetensors"),
      /maps "nobody" to model-2\.safetensors, which does not contain it/,
    ],
  ])("refuse %s", async (_, change, message) => {
    await shard(change);
    await expectRefusal(message);
  });
});

describe("saveCausalLM", () => {
  it("writes what it read: the same tensors byte for byte, settings and tokenizer files, tied weights once", async () => {
    const { model, tokenizer } = await loadCausalLM(goldenFolder);
    const saved = join(folder, "saved");
    await saveCausalLM(saved, model, tokenizer);
    const files = await readdir(goldenFolder);
    expect((await readdir(saved)).sort()).toEqual([...files, "SHA256SUMS"].sort());
    for (const name of ["tokenizer.json", "tokenizer_config.json"]) {
      expect(await readFile(join(saved, name))).toEqual(await readFile(join(goldenFolder, name)));
    }
    for (const name of ["config.json", "generation_config.json"]) {
      const read = async (place: string) => JSON.parse(await readFile(join(place, name), "utf8")) as unknown;
      expect(await read(saved)).toEqual(await read(goldenFolder));
    }
    const weights = async (place: string) =>
      parseSafetensors(await readFile(join(place, "model.safetensors")));
    const [written, original] = [await weights(saved), await weights(goldenFolder)];
    expect([...written.keys()].sort()).toEqual([...original.keys()].sort());
    for (const [key, raw] of original) {
      expect(written.get(key)!.shape).toEqual(raw.shape);
      expect(Buffer.compare(written.get(key)!.data, raw.data), key).toBe(0);
    }
    expect(written.has("lm_head.weight")).toBe(false);
    model.dispose();
  });

  it("writes a changed model that scores the same after reloading, in its own type", async () => {
    const { model, tokenizer } = await loadCausalLM(goldenFolder);
    const changed = model.copy("bfloat16");
    noGrad(() => changed.namedParameters().forEach((tensor: Tensor) => void tensor.mul_(1.25)));
    const saved = join(folder, "deep", "new");
    await saveCausalLM(saved, changed, tokenizer);
    expect(JSON.parse(await readFile(join(saved, "config.json"), "utf8"))).toMatchObject({
      dtype: "bfloat16",
    });
    const again = await loadCausalLM(saved, { dtype: "bfloat16" });
    expect(score(again.model)).toEqual(score(changed));
    expect(score(again.model)).not.toEqual(score(model));
    for (const lm of [model, changed, again.model]) lm.dispose();
  });

  it("replaces the checkpoint that the model was read from, and leaves no other files", async () => {
    const { model, tokenizer } = await loadCausalLM(folder);
    noGrad(() => model.namedParameters().get("transformer.wte.weight")!.mul_(0.5));
    const expected = score(model);
    const neighbours = await readdir(root);
    await saveCausalLM(folder, model, tokenizer);
    await saveCausalLM(folder, model, tokenizer);
    expect(await readdir(root)).toEqual(neighbours);
    expect(score(model)).toEqual(expected);
    const again = await loadCausalLM(folder);
    expect(score(again.model)).toEqual(expected);
    model.dispose();
    again.model.dispose();
  });

  it("does not delete a folder that is not a checkpoint, and names a folder that it cannot write", async () => {
    const { model, tokenizer } = await loadCausalLM(goldenFolder);
    const occupied = join(folder, "occupied");
    await mkdir(occupied);
    await writeFile(join(occupied, "thesis.txt"), "");
    await expect(saveCausalLM(occupied, model, tokenizer)).rejects.toThrow(
      breaking("folder-occupied", '["thesis.txt"]'),
    );
    await expect(saveCausalLM(join(folder, "config.json"), model, tokenizer)).rejects.toThrow(
      breaking("not-writable", "config.json"),
    );
    await expect(saveCausalLM(join(folder, "config.json", "x"), model, tokenizer)).rejects.toThrow(
      breaking("not-writable", "config.json"),
    );
    if (process.getuid?.() !== 0) {
      await chmod(occupied, 0o500);
      await expect(saveCausalLM(join(occupied, "x"), model, tokenizer)).rejects.toThrow(
        breaking("not-writable", join(occupied, "x")),
      );
      await chmod(occupied, 0o700);
    }
    model.dispose();
  });
});
