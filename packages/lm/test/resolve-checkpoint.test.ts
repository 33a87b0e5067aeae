import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { dispose, liveTensors, noGrad, openStateDict, scope } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CausalLM } from "../src/causal-lm.js";
import { loadCausalLM, loadSequenceClassifier } from "../src/checkpoint.js";
import { classLogits } from "../src/class-logits.js";
import type { DownloadProgress } from "../src/hub/index.js";
import { tokenLogprobs } from "../src/logprobs.js";
import { LoRA } from "../src/adapters/lora.js";
import { isModelId, resolveCheckpoint } from "../src/resolve-checkpoint.js";
import { TOKENIZER_FILES } from "../src/tokenizer.js";
import { goldenCausal, goldenClassifiers } from "./golden/families.js";
import { goldenFolder } from "./golden/gpt2.js";
import { published, publishedFolder } from "./golden/published.js";
import { COMMIT, filesOf, openFolderHub, type FolderHub } from "./hub/folder-hub.js";

const causal = (name: string) => goldenCausal.find((golden) => golden.name === name)!;
const sharded = causal("llama3-sharded");
const whole = causal("qwen2");
const rows = [{ context: [5, 6, 7], continuation: [8, 9, 10] }];
const scores = (model: CausalLM) => noGrad(() => scope(() => tokenLogprobs(model, rows).toArray()));

let hub: FolderHub;
beforeEach(async () => {
  hub = await openFolderHub();
});
afterEach(() => hub.close());

const downloaded = () =>
  hub.requests.filter((path) => path.includes("/resolve/")).map((path) => path.split(`/${COMMIT}/`)[1]!);

async function refusalOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(UsageError);
  return (error as UsageError).message;
}

describe("loadCausalLM with a model id", () => {
  it("loads the shards that the index names, and no unneeded file", async () => {
    const files = filesOf(sharded.folder);
    for (const name of [
      "pytorch_model-00001-of-00001.bin",
      "README.md",
      "original/consolidated.safetensors",
    ]) {
      files.set(name, Buffer.from("not needed"));
    }
    files.set("model-00009-of-00009.safetensors", Buffer.from("of another index"));
    hub.repositories.set("owner/sharded", files);
    const before = liveTensors();
    const progress = new Map<string, DownloadProgress>();
    const remote = await loadCausalLM("owner/sharded@v1.0", {
      hub: { ...hub.options(), onProgress: (report) => progress.set(report.file, report) },
    });
    const local = await loadCausalLM(sharded.folder);
    expect(scores(remote.model)).toEqual(scores(local.model));
    expect(remote.tokenizer.directoryFiles).toEqual(local.tokenizer.directoryFiles);
    expect(remote.generation).toEqual(local.generation);
    remote.model.dispose();
    local.model.dispose();
    expect(liveTensors()).toBe(before);

    expect(hub.requests[0]).toBe("/api/models/owner/sharded/revision/v1.0");
    const needed = readdirSync(sharded.folder).filter((name) => name !== "expected.json");
    expect(downloaded().sort()).toEqual(needed.sort());
    // The index is downloaded first: it determines the shards.
    expect(downloaded()[0]).toBe("model.safetensors.index.json");
    for (const name of needed) {
      const size = files.get(name)!.length;
      expect(progress.get(name)).toEqual({ file: name, received: size, total: size });
    }
  });

  it("takes only the files of another repository's tokenizer if a repository has none", async () => {
    const files = filesOf(whole.folder);
    hub.repositories.set("owner/whole", new Map(files));
    const tokenizerFiles = [...files.keys()].filter((name) => TOKENIZER_FILES.includes(name));
    for (const name of tokenizerFiles) files.delete(name);
    hub.repositories.set("owner/bare", files);
    const options = { hub: hub.options() };
    expect(await refusalOf(loadCausalLM("owner/bare", options))).toContain(
      "a checkpoint needs tokenizer.json, or the files of a vocabulary",
    );
    const missing = loadCausalLM("owner/bare", { ...options, tokenizer: "owner/bare" });
    expect(await refusalOf(missing)).toContain("a tokenizer needs tokenizer.json or vocab.txt");
    hub.requests.length = 0;
    const remote = await loadCausalLM("owner/bare", { ...options, tokenizer: "owner/whole" });
    const local = await loadCausalLM(whole.folder);
    expect(scores(remote.model)).toEqual(scores(local.model));
    expect(remote.tokenizer.directoryFiles).toEqual(local.tokenizer.directoryFiles);
    const fetched = hub.requests.filter((path) => path.startsWith("/owner/whole/resolve/"));
    expect(fetched.map((path) => path.split(`/${COMMIT}/`)[1]!).sort()).toEqual(
      [...tokenizerFiles, "config.json"].sort(),
    );
    remote.model.dispose();
    local.model.dispose();
  });

  it("prefers a single file to shards if both exist", async () => {
    const files = filesOf(sharded.folder);
    for (const [name, content] of filesOf(whole.folder)) files.set(name, content);
    hub.repositories.set("owner/both", files);
    const { model } = await loadCausalLM("owner/both", { hub: hub.options() });
    model.dispose();
    expect(downloaded().filter((name) => name.startsWith("model"))).toEqual(["model.safetensors"]);
  });

  it("needs no connection once the model is cached", async () => {
    hub.repositories.set("owner/sharded", filesOf(sharded.folder));
    const first = await loadCausalLM("owner/sharded", { hub: hub.options() });
    hub.requests.length = 0;
    const second = await loadCausalLM("owner/sharded", { hub: hub.options({ HF_HUB_OFFLINE: "1" }) });
    expect(scores(second.model)).toEqual(scores(first.model));
    expect(hub.requests).toEqual([]);
    first.model.dispose();
    second.model.dispose();

    expect(
      await refusalOf(loadCausalLM("owner/other", { hub: hub.options({ HF_HUB_OFFLINE: "1" }) })),
    ).toMatch(
      /^owner\/other: there is no such folder; as a model id: hub: HF_HUB_OFFLINE is set and .* go online once/,
    );
  });

  it("warns and uses the cached copy when the hub is unreachable; refuses a copy without a shard", async () => {
    hub.repositories.set("owner/sharded", filesOf(sharded.folder));
    const folder = await resolveCheckpoint("owner/sharded", hub.options());
    const unreachable = hub.options({ HF_ENDPOINT: "http://127.0.0.1:9" });
    const warnings: string[] = [];
    expect(
      await resolveCheckpoint("owner/sharded", {
        ...unreachable,
        onWarning: (sentence) => warnings.push(sentence),
      }),
    ).toBe(folder);
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toContain(`using the cached copy of "owner/sharded"`);
    await rm(join(folder, "model-00002-of-00003.safetensors"));
    expect(await refusalOf(resolveCheckpoint("owner/sharded", unreachable))).toMatch(
      /incomplete .*model-00002-of-00003\.safetensors/,
    );
  });

  it("an interruption between index and shards leaves the earlier revision usable", async () => {
    hub.repositories.set("owner/sharded", filesOf(sharded.folder));
    const files = hub.repositories.get("owner/sharded")!;
    files.delete("model-00003-of-00003.safetensors");
    expect(await refusalOf(resolveCheckpoint("owner/sharded", hub.options()))).toMatch(
      /model\.safetensors\.index\.json names model-00003-of-00003\.safetensors, but the repository has no such file/,
    );
    // This commit is not marked as complete.
    expect(await refusalOf(resolveCheckpoint("owner/sharded", hub.options({ HF_HUB_OFFLINE: "1" })))).toMatch(
      /is not in the cache/,
    );
    expect(downloaded()).toEqual(["model.safetensors.index.json"]);
  });

  it.each([
    [401, /does not exist, or is private or gated: .*HF_TOKEN/],
    [403, /is gated: accept its conditions on http.*\/owner\/gated .*HF_TOKEN/],
    [404, /does not exist: check the spelling/],
  ])("says what to do when the hub answers %d", async (status, sentence) => {
    hub.refusal = status;
    const message = await refusalOf(loadCausalLM("owner/gated", { hub: hub.options() }));
    expect(message).toMatch(/^owner\/gated: there is no such folder; as a model id: /);
    expect(message).toMatch(sentence);
  });

  it.each([
    ["model.safetensors", "weights.pt", /weights\.pt is in a format .*: save it once in Python/],
    [
      "model.safetensors",
      "tf_model.h5",
      /there is neither; tf_model\.h5 is in a format that is not supported/,
    ],
    ["config.json", "README.md", /needs config\.json, but the repository has none/],
    [
      "tokenizer.json",
      "tokenizer.model",
      /needs tokenizer\.json, or the files of a vocabulary \(.*\), but the repository has none/,
    ],
  ])(
    "refuses a repository without %s but with %s before it fetches anything",
    async (lost, found, sentence) => {
      const files = filesOf(whole.folder);
      files.delete(lost);
      files.set(found, Buffer.from("x"));
      hub.repositories.set("owner/name", files);
      expect(await refusalOf(loadCausalLM("owner/name", { hub: hub.options() }))).toMatch(sentence);
      expect(downloaded()).toEqual([]);
    },
  );

  it.each(published)(
    "loads $variant from pickled weights and the files of its vocabulary",
    async ({ folder }) => {
      const files = filesOf(folder);
      files.set("training_args.bin", Buffer.from("not needed"));
      hub.repositories.set("owner/published", files);
      const before = liveTensors();
      const remote = await loadSequenceClassifier("owner/published", { hub: hub.options() });
      const local = await loadSequenceClassifier(folder);
      const texts = ["Hello there.", "今日は"];
      expect(classLogits(remote, texts)).toEqual(classLogits(local, texts));
      remote.model.dispose();
      local.model.dispose();
      expect(liveTensors()).toBe(before);
      const needed = readdirSync(folder).filter((name) => name !== "expected.json");
      expect(downloaded().sort()).toEqual(needed.sort());
    },
  );

  it("takes safetensors rather than pickled weights, and shards of either", async () => {
    const files = filesOf(whole.folder);
    files.set("pytorch_model.bin", Buffer.from("not needed"));
    hub.repositories.set("owner/both", files);
    const { model } = await loadCausalLM("owner/both", { hub: hub.options() });
    model.dispose();
    expect(downloaded()).not.toContain("pytorch_model.bin");

    hub.requests.length = 0;
    const shard = "pytorch_model-00001-of-00001.bin";
    const pickled = filesOf(publishedFolder("original"));
    const weights = pickled.get("pytorch_model.bin")!;
    pickled.delete("pytorch_model.bin");
    pickled.set(shard, weights);
    using state = openStateDict(join(publishedFolder("original"), "pytorch_model.bin"));
    const index = { weight_map: Object.fromEntries([...state.tensors.keys()].map((key) => [key, shard])) };
    pickled.set("pytorch_model.bin.index.json", Buffer.from(JSON.stringify(index)));
    hub.repositories.set("owner/pickled", pickled);
    const sharded = await loadSequenceClassifier("owner/pickled", { hub: hub.options() });
    const local = await loadSequenceClassifier(publishedFolder("original"));
    expect(classLogits(sharded, ["Hello."])).toEqual(classLogits(local, ["Hello."]));
    sharded.model.dispose();
    local.model.dispose();
    expect(downloaded()[0]).toBe("pytorch_model.bin.index.json");
  });

  it("refuses an index whose shards are outside the folder", async () => {
    const files = filesOf(sharded.folder);
    const index = { weight_map: { "lm_head.weight": "../outside.safetensors" } };
    files.set("model.safetensors.index.json", Buffer.from(JSON.stringify(index)));
    hub.repositories.set("owner/name", files);
    expect(await refusalOf(loadCausalLM("owner/name", { hub: hub.options() }))).toMatch(
      /owner\/name\/model\.safetensors\.index\.json: each tensor's file must be the name of a \.safetensors file/,
    );
  });
});

describe("other readers of checkpoints", () => {
  it("a classifier's id gives the scores of its folder", async () => {
    const { folder } = goldenClassifiers[0]!;
    hub.repositories.set("owner/classifier", filesOf(folder));
    const remote = await loadSequenceClassifier("owner/classifier", { hub: hub.options() });
    const local = await loadSequenceClassifier(folder);
    const values = ({ model }: typeof local) =>
      [...model.namedParameters()].map(([name, tensor]) => [name, tensor.toTypedArray()]);
    expect(values(remote)).toEqual(values(local));
    remote.model.dispose();
    local.model.dispose();
  });

  it("an adapter's repository without a checkpoint can be loaded", async () => {
    const { model } = await loadCausalLM(goldenFolder);
    const adapter = LoRA.create(
      model.projections(),
      { rank: 2, alpha: 4, targetModules: ["c_attn"] },
      { seed: 1 },
    );
    const temporary = await mkdtemp(join(tmpdir(), "adapter-"));
    const folder = join(temporary, "adapter");
    await adapter.save(folder, { baseModel: "owner/base", baseRevision: "v2" });
    hub.repositories.set("owner/adapter", filesOf(folder));
    const loaded = await LoRA.load("owner/adapter", model.projections(), { hub: hub.options() });
    const values = (lora: LoRA) =>
      [...lora.namedParameters()].map(([name, tensor]) => [name, tensor.toTypedArray()]);
    expect(values(loaded)).toEqual(values(adapter));
    expect(downloaded().sort()).toEqual(["adapter_config.json", "adapter_model.safetensors"]);
    dispose([...loaded.namedParameters().values(), ...adapter.namedParameters().values()]);
    model.dispose();
    await rm(temporary, { recursive: true });
  });
});

describe("model ids", () => {
  it.each(["owner/name", "owner/name@main", "owner/name@refs/pr/1", "openai-community/gpt2"])(
    "%s",
    (text) => {
      expect(isModelId(text)).toBe(true);
    },
  );

  it.each([
    "./owner/name",
    "../name",
    "/owner/name",
    "~/name",
    "owner\\name",
    "runs/demo/checkpoint",
    "gpt2",
    "owner/",
    "owner/name@",
    "owner/name@../x",
    "",
  ])("excludes %j: a missing folder is reported as missing", async (text) => {
    expect(isModelId(text)).toBe(false);
    expect(await refusalOf(loadCausalLM(text, { hub: hub.options() }))).toMatch(/there is no such folder/);
    expect(hub.requests).toEqual([]);
  });

  it("an existing folder takes precedence over an id of the same name", async () => {
    const root = await mkdtemp(join(tmpdir(), "resolve-"));
    const previous = process.cwd();
    process.chdir(root);
    try {
      hub.repositories.set("owner/name", filesOf(whole.folder));
      await mkdir("owner/name", { recursive: true });
      expect(await resolveCheckpoint("owner/name", hub.options())).toBe("owner/name");
      expect(hub.requests).toEqual([]);
    } finally {
      process.chdir(previous);
      await rm(root, { recursive: true });
    }
  });
});
