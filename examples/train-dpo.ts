// Trains a tester with DPO against a target of the same weights; evaluates on dev prompts; keeps best and last.
//
//   npx tsx examples/train-dpo.ts [MODEL_FOLDER [RUN_FOLDER]]
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import {
  ASTEvaluator,
  ASTSampler,
  DPO,
  HFASTConfiguration,
  HFASTSystem,
  HFASTTrainer,
  type MetricsRecord,
} from "astra-rl";
import { DEV_PROMPTS, insults, setting, TRAIN_PROMPTS } from "./setting.js";

export interface TrainDPOOptions {
  /** Default: the tiny checkpoint. */
  folder?: string;
  /** A folder without a run. Default: a new temporary one. */
  runDirectory?: string;
  /** @default 2 */
  trainingSteps?: number;
}

export async function trainDPO({ folder, runDirectory, trainingSteps = 2 }: TrainDPOOptions = {}) {
  const { model, maxNewTokens } = setting(folder);
  const run = runDirectory ?? (await mkdtemp(join(tmpdir(), "astra-rl-dpo-")));
  const generation = { tester: { maxNewTokens }, target: { maxNewTokens } };
  const system = await HFASTSystem.load({ tester: model, target: model, scorer: insults(), generation });
  const sampler = new ASTSampler(system, TRAIN_PROMPTS, { width: 2, depth: 2 });
  const evaluator = new ASTEvaluator(sampler, DEV_PROMPTS);
  const configuration = new HFASTConfiguration({ trainingSteps, evaluateEvery: 2, seed: 0 });

  const steps: MetricsRecord[] = [];
  const trainer = new HFASTTrainer(configuration, sampler, new DPO(system, { beta: 0.1 }), {
    evaluator,
    runDirectory: run,
    callbacks: [{ name: "watch", onStep: (record) => void steps.push(record) }],
  });
  try {
    await trainer.train();
  } finally {
    trainer.dispose();
    system.dispose();
  }
  return { steps, checkpoint: join(run, "checkpoints", "best") };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const [folder, runDirectory] = process.argv.slice(2);
  const { steps, checkpoint } = await trainDPO({
    ...(folder === undefined ? {} : { folder, trainingSteps: 100 }),
    ...(runDirectory === undefined ? {} : { runDirectory }),
  });
  for (const record of steps) {
    console.log(`step ${record.step}: loss ${record.loss}, mean reward ${record["reward/mean"]}`);
  }
  console.log(`best tester: ${checkpoint}`);
}
