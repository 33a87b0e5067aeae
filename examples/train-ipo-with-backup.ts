// Trains with IPO on back-up credit: a turn is credited with its own reward plus the discounted credit of the best
// following turn. The rewards on the nodes are not changed.
//
//   npx tsx examples/train-ipo-with-backup.ts [MODEL_FOLDER]
import { pathToFileURL } from "node:url";
import {
  ASTSampler,
  backUp,
  type CreditTable,
  type Graph,
  HFASTSystem,
  IPO,
  type MetricsRecord,
  Trainer,
  TrainingConfiguration,
  visible,
} from "astra-rl";
import { insults, setting, TRAIN_PROMPTS } from "./setting.js";

export interface TrainIPOOptions {
  /** Default: the tiny checkpoint. */
  folder?: string;
  /** @default 2 */
  trainingSteps?: number;
  /** Discount of credit one turn later. @default 0.9 */
  discount?: number;
}

/** A training graph, and the credit of its turns. */
export interface Credited {
  graph: Graph;
  credit: CreditTable;
}

export async function trainIPO({ folder, trainingSteps = 2, discount = 0.9 }: TrainIPOOptions = {}) {
  const { model, maxNewTokens } = setting(folder);
  const generation = { tester: { maxNewTokens }, target: { maxNewTokens } };
  const system = await HFASTSystem.load({ tester: model, target: model, scorer: insults(), generation });
  const credited: Credited[] = [];
  const backedUp = backUp({ op: "max", gamma: discount });
  const credit = (graph: Graph) => {
    const table = backedUp(graph);
    credited.push({ graph, credit: table });
    return table;
  };
  const configuration = new TrainingConfiguration({
    trainingSteps,
    learningRate: 1e-5,
    batchSize: 4,
    numEpisodesPerExperience: 1,
  });
  const steps: MetricsRecord[] = [];
  const sampler = new ASTSampler(system, TRAIN_PROMPTS, { width: 2, depth: 3 });
  const trainer = new Trainer(configuration, sampler, new IPO(system, { beta: 0.1 }), {
    credit,
    callbacks: [{ name: "watch", onStep: (record) => void steps.push(record) }],
  });
  try {
    await trainer.train();
  } finally {
    trainer.dispose();
    system.dispose();
  }
  return { steps, credited };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const folder = process.argv[2];
  const { steps, credited } = await trainIPO(folder === undefined ? {} : { folder, trainingSteps: 100 });
  for (const record of steps) console.log(`step ${record.step}: loss ${record.loss}`);
  const { graph, credit } = credited.at(-1)!;
  for (const node of graph.path()) {
    const future = credit.get(node)?.toFixed(3) ?? "unknown";
    console.log(`${node.reward.toFixed(3)} reward, ${future} credit: ${visible(node.probe.text)}`);
  }
}
