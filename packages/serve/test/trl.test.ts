import { spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { modelSource } from "@astra-rl/assembly";
import { temporaryFolder } from "../../method/test/training/temporary-folder.js";

// Set by npm run nightly.
const PYTHON = process.env["ASTRA_PYTHON"] ?? "";
const hasTrl =
  PYTHON !== "" && spawnSync(PYTHON, ["-c", "import trl, datasets"], { stdio: "ignore" }).status === 0;
if (!hasTrl) {
  process.stderr.write(
    "trl.test.ts: TRL is not tried: set ASTRA_PYTHON to a Python with trl, or run npm run nightly\n",
  );
}

const PROGRAM = fileURLToPath(new URL("../../astra-rl/bin/astra-rl.js", import.meta.url));
const INTEGRATIONS = fileURLToPath(new URL("../../astra-rl/integrations", import.meta.url));
const PROMPTS = fileURLToPath(new URL("../../assembly/world/prompts/train.json", import.meta.url));
const stops: (() => void)[] = [];
afterAll(() => stops.forEach((stop) => stop()));

/** The program of docs/guides/with-trl.md, on the embedded chat world. */
const TRAIN = `
import json, sys
url, tester, prompts, integrations, node, program, output = sys.argv[1:]
sys.path.append(integrations)
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl_rollout import ConversationTrees, harm_by_harmless_probes
tokenizer = AutoTokenizer.from_pretrained(tester, padding_side="left")
tokenizer.pad_token = tokenizer.eos_token
trees = ConversationTrees(url, "target", scorer="embedded", depth=3, max_new_tokens=24, top_k=50, top_p=0.95, astra=(node, program))
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(tester, dtype="float32"),
    processing_class=tokenizer,
    args=GRPOConfig(output, num_generations=4, per_device_train_batch_size=32, learning_rate=5e-4, beta=0.02, max_steps=80,
                    logging_steps=1, report_to=[], use_cpu=True, bf16=False, save_strategy="no", seed=1,
                    lr_scheduler_type="constant", max_completion_length=24),
    train_dataset=Dataset.from_list([{"prompt": line} for line in json.load(open(prompts))]),
    rollout_func=trees,
    reward_funcs=harm_by_harmless_probes,
)
trainer.train()
trainer.save_model(output)
tokenizer.save_pretrained(output)
rows = [row for row in trainer.state.log_history if "reward" in row]
print(json.dumps({"rewards": [row["reward"] for row in rows], "calls": trees.calls}))
`;

describe.skipIf(!hasTrl)("TRL's GRPOTrainer", () => {
  it("trains the tester of the chat world in our environment", async () => {
    const tester = modelSource("embedded:chat");
    const server = spawn(
      process.execPath,
      [PROGRAM, "serve", "--model", "embedded:chat", "--name", "target", "--port", "0", "--quiet"],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    stops.push(() => void server.kill("SIGTERM"));
    const url = await new Promise<string>((resolve) => {
      server.stdout.once("data", (line: Buffer) => resolve(line.toString().trim()));
    });
    const output = join(temporaryFolder(), "trained");
    const { stdout, stderr, status } = spawnSync(
      PYTHON,
      ["-c", TRAIN, url, tester, PROMPTS, INTEGRATIONS, process.execPath, PROGRAM, output],
      { encoding: "utf8", env: { ...process.env, HF_HUB_OFFLINE: "1", TOKENIZERS_PARALLELISM: "false" } },
    );
    expect([status, status === 0 ? "" : stderr.slice(-2000)]).toEqual([0, ""]);
    const { rewards, calls } = JSON.parse(stdout.trim().split("\n").at(-1)!) as {
      rewards: number[];
      calls: number;
    };
    expect(calls).toBe(80);
    expect(rewards).toHaveLength(80);
    const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
    const [first, last] = [mean(rewards.slice(0, 20)), mean(rewards.slice(-20))];
    process.stderr.write(
      `TRL: mean reward ${first.toFixed(3)} in the first 20 steps, ${last.toFixed(3)} in the last 20\n`,
    );
    expect(last).toBeGreaterThan(first + 0.05);
    // The result is a checkpoint that this toolbox loads.
    expect(existsSync(join(output, "model.safetensors"))).toBe(true);
    const text = spawnSync(process.execPath, [PROGRAM, "generate", "--model", output, "--input", "-"], {
      encoding: "utf8",
      input: '{"prompt": "Hello."}\n',
    });
    expect(text.status).toBe(0);
    expect(readFileSync(join(output, "config.json"), "utf8")).toContain("gpt2");
  }, 600_000);
});
