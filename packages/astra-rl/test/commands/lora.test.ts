import { existsSync, readFileSync } from "node:fs";
import { liveTensors } from "@astra-rl/torch";
import { expect, test } from "vitest";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();

const lora = ["--set", "models.lora.targetModules=[c_attn]", "--set", "models.lora.rank=2"];
const KEYWORDS = ["--set", "scorer={type: keyword, entries: [{term: a}]}"];
const small = [
  "--set",
  "training.trainingSteps=2",
  "--set",
  "training.evaluateEvery=0",
  "--set",
  "sampler.depth=1",
];

test("train with models.lora trains an adapter, saves it in PEFT's format, and eval reads it", async () => {
  const live = liveTensors();
  await runCommand("init", path("run.yaml"), "--tester", goldenFolder, "--target", goldenFolder);
  const tokens = ["--set", "generation.tester.maxNewTokens=4", "--set", "generation.target.maxNewTokens=4"];
  const rest = [...small, ...tokens, ...KEYWORDS, "--quiet"];
  const trained = await runCommand("train", path("run.yaml"), "--run-dir", path("run"), ...lora, ...rest);
  expect([trained.code, trained.err]).toEqual([0, ""]);
  const folder = path("run", "checkpoints", "last");
  const saved = JSON.parse(readFileSync(`${folder}/adapter_config.json`, "utf8")) as Record<string, unknown>;
  expect(saved).toMatchObject({ peft_type: "LORA", r: 2, lora_alpha: 16, target_modules: ["c_attn"] });
  expect(existsSync(`${folder}/model.safetensors`)).toBe(false);
  expect(readFileSync(path("run", "config.resolved.yaml"), "utf8")).toMatch(/lora:\n +rank: 2/);

  const output = ["--output", path("evaluation.json"), "--set", "evaluation.rollouts=2", "--quiet"];
  const evaluated = await runCommand(
    "eval",
    path("run.yaml"),
    "--tester",
    folder,
    ...output,
    ...tokens,
    ...KEYWORDS,
  );
  expect([evaluated.code, evaluated.err]).toEqual([0, ""]);
  expect(liveTensors()).toBe(live);
});

test("an unknown projection is an error that lists the known ones", async () => {
  await runCommand("init", path("run.yaml"), "--tester", goldenFolder, "--target", goldenFolder);
  const wrong = ["--set", "models.lora.targetModules=[q_proj]"];
  const { code, err } = await runCommand(
    "train",
    path("run.yaml"),
    "--run-dir",
    path("run"),
    ...wrong,
    ...KEYWORDS,
  );
  expect(code).toBe(2);
  expect(err).toMatch(/no projection "q_proj"; it has c_attn/);
});
