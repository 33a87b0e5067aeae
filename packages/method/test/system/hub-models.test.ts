import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { liveTensors } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { KeywordScorer } from "@astra-rl/scorers";
import { breaking } from "../../../base/test/support/breaking.js";
import { filesOf, openFolderHub, type FolderHub } from "../../../lm/test/hub/folder-hub.js";
import type { Graph } from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTSystem, HFEvaluationSystem, type HFASTSystemOptions } from "../../src/system/index.js";
import { localTarget } from "../support/local-target.js";

const GPT2 = fileURLToPath(new URL("../../../lm/test/golden/gpt2", import.meta.url));
const lora = { rank: 2, alpha: 4, targetModules: ["c_attn"], seed: 3 };

let hub: FolderHub;
let folder: string;
let before: number;
beforeEach(async () => {
  before = liveTensors();
  hub = await openFolderHub();
  hub.repositories.set("owner/tiny", filesOf(GPT2));
  folder = await mkdtemp(join(tmpdir(), "hub-models-"));
});
afterEach(async () => {
  await hub.close();
  await rm(folder, { recursive: true });
  expect(liveTensors()).toBe(before);
});

const common = () => ({
  scorer: new KeywordScorer([{ pattern: "a", weight: 0.5 }]),
  inferenceDtype: "float32" as const,
  generation: { tester: { maxNewTokens: 4 }, target: { maxNewTokens: 4 } },
  log: () => {},
  hub: hub.options(),
});
const load = (tester: string, target: string, options: Partial<HFASTSystemOptions> = {}) =>
  HFASTSystem.load({ ...common(), tester, target, ...options });
const grow = async (system: HFASTSystem | HFEvaluationSystem): Promise<Graph> =>
  (await new ASTSampler(system, ["Hello. "], { width: 2, depth: 2 }).rolloutMany([1]))[0]!;
const listings = () => hub.requests.filter((path) => path.startsWith("/api/"));

describe("models from the hub in a system", () => {
  it("roll out like local folders, downloaded once and loaded once for all roles", async () => {
    const system = await load("owner/tiny", "owner/tiny");
    expect(localTarget(system).sharesWeights(system.baseline)).toBe(true);
    expect(listings()).toHaveLength(1);
    const local = await load(GPT2, GPT2);
    expect(JSON.stringify(await grow(system))).toBe(JSON.stringify(await grow(local)));
    system.dispose();
    local.dispose();
  });

  it("an adapter names its base by id and revision, from which it is loaded", async () => {
    const system = await load("owner/tiny@v1", "owner/tiny", { lora });
    const saved = join(folder, "adapter");
    await system.saveTester(saved);
    const expected = JSON.stringify(await grow(system));
    system.dispose();
    const configuration = JSON.parse(await readFile(join(saved, "adapter_config.json"), "utf8")) as object;
    expect(configuration).toMatchObject({ base_model_name_or_path: "owner/tiny", revision: "v1" });

    hub.repositories.set("owner/adapter", filesOf(saved));
    for (const tester of [saved, "owner/adapter"]) {
      hub.requests.length = 0;
      const evaluation = await HFEvaluationSystem.load({ ...common(), tester, target: GPT2 });
      expect(JSON.stringify(await grow(evaluation))).toBe(expected);
      expect(listings()).toContain("/api/models/owner/tiny/revision/v1");
      evaluation.dispose();
    }
  });

  it("a run needs no connection if its models are in the cache", async () => {
    (await load("owner/tiny", "owner/tiny")).dispose();
    hub.requests.length = 0;
    const system = await load("owner/tiny", "owner/tiny", { hub: hub.options({ HF_HUB_OFFLINE: "1" }) });
    expect(hub.requests).toEqual([]);
    system.dispose();
  });

  it("a gated model and a missing folder are refused with a remedy", async () => {
    hub.refusal = 403;
    const gated = load("owner/gated", GPT2);
    await expect(gated).rejects.toBeInstanceOf(UsageError);
    await expect(gated).rejects.toThrow(breaking("gated-repository", '"owner/gated"'));
    hub.requests.length = 0;
    await expect(load("./owner/name", GPT2)).rejects.toThrow(breaking("folder-not-found", "./owner/name"));
    expect(hub.requests).toEqual([]);
  });
});
