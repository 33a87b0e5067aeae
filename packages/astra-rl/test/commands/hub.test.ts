import { writeFileSync } from "node:fs";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { filesOf, openFolderHub, type FolderHub } from "../../../lm/test/hub/folder-hub.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();
let hub: FolderHub;
beforeEach(async () => {
  hub = await openFolderHub();
  hub.repositories.set("owner/tiny", filesOf(goldenFolder));
  const { endpoint, cacheRoot } = hub.options().settings!;
  for (const [name, value] of Object.entries({
    HF_ENDPOINT: endpoint,
    HF_HUB_CACHE: cacheRoot,
    HF_TOKEN: "",
    HF_HUB_OFFLINE: "",
    HF_HUB_DISABLE_IMPLICIT_TOKEN: "1",
  })) {
    vi.stubEnv(name, value);
  }
  writeFileSync(path("prompts.jsonl"), `{"prompt": "Hello. "}\n`);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await hub.close();
});

const generate = (model: string) =>
  runCommand("generate", "--model", model, "--input", path("prompts.jsonl"), "--max-new-tokens", "4");

test("a model id gives the same result as its folder", async () => {
  const remote = await generate("owner/tiny");
  const local = await generate(goldenFolder);
  expect(remote.code).toBe(0);
  expect(remote.out).toBe(local.out);
  vi.stubEnv("HF_HUB_OFFLINE", "1");
  hub.requests.length = 0;
  expect((await generate("owner/tiny")).out).toBe(local.out);
  expect(hub.requests).toEqual([]);
});

test("a gated model exits with 2 and one sentence", async () => {
  hub.refusal = 403;
  const { code, err } = await generate("owner/tiny");
  expect(code).toBe(2);
  expect(err).toMatch(/^--model: .*\nastra-rl: owner\/tiny: .*is gated: accept its conditions on .*\n$/u);
});

test.each([
  ["generate", { prompt: "Hello. " }],
  ["logprobs", { context: "Hello. ", continuation: "You." }],
  ["encode", { text: "Hello. " }],
])("%s says which name it loads from the hub, and nothing for a folder", async (command, row) => {
  writeFileSync(path("rows.jsonl"), `${JSON.stringify(row)}\n`);
  const run = (model: string, ...more: string[]) =>
    runCommand(command, "--model", model, "--input", path("rows.jsonl"), ...more);
  const note = "--model: the folder owner/tiny does not exist, so the model is loaded from the hub";
  const remote = await run("owner/tiny");
  expect(remote.code).toBe(0);
  expect(remote.err.split("\n")[0]).toBe(note);
  expect((await run(goldenFolder)).err).not.toContain("--model");
  expect((await run("owner/tiny", "--quiet")).err).not.toContain(note);
});
