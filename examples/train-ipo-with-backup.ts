// Trains with IPO on rewards that look ahead: a turn is worth its own reward plus the discounted worth of the best turn
// that followed. Needs a node that remembers its own reward, and a post-processor of the graph.
//
//   npx tsx examples/train-ipo-with-backup.ts [MODEL_FOLDER]
import { pathToFileURL } from "node:url";
import {
  ASTSampler,
  type Graph,
  HFASTSystem,
  IPO,
  type MetricsRecord,
  Node,
  type NodeFields,
  Trainer,
  TrainingConfiguration,
  visible,
} from "astra-rl";
import { insults, setting, TRAIN_PROMPTS } from "./setting.js";

/** A node whose `reward` may be backed up; what the turn itself was worth stays in `ownReward`. */
export class BackedUpNode extends Node {
  readonly ownReward: number;

  constructor(fields: NodeFields) {
    super(fields);
    this.ownReward = fields.reward;
  }
}

/**
 * reward ← own reward + discount · (largest reward among the children after their own back-up), from the leaves to the
 * root. Failed turns stay NaN and lend nothing to their parents.
 */
export function backUp(graph: Graph, discount: number): void {
  // Parents come before their children, so that backwards every child is done before its parent.
  for (const node of [...graph.nodes()].reverse()) {
    const future = node.children.map((child) => child.reward).filter(Number.isFinite);
    if (future.length > 0) node.reward += discount * Math.max(...future);
  }
}

export interface TrainIPOOptions {
  /** Default: the tiny checkpoint. */
  folder?: string;
  /** @default 2 */
  trainingSteps?: number;
  /** What a reward one turn later is worth now. @default 0.9 */
  discount?: number;
}

export async function trainIPO({ folder, trainingSteps = 2, discount = 0.9 }: TrainIPOOptions = {}) {
  const { model, maxNewTokens } = setting(folder);
  const generation = { tester: { maxNewTokens }, target: { maxNewTokens } };
  const system = await HFASTSystem.load({ tester: model, target: model, scorer: insults(), generation });
  const graphs: Graph[] = [];
  const sampler = new ASTSampler(system, TRAIN_PROMPTS, {
    width: 2,
    depth: 3,
    createNode: (fields) => new BackedUpNode(fields),
    postProcess: [(graph) => backUp(graph, discount), (graph) => void graphs.push(graph)],
  });
  const configuration = new TrainingConfiguration({
    trainingSteps,
    learningRate: 1e-5,
    batchSize: 4,
    numEpisodesPerExperience: 1,
  });
  const steps: MetricsRecord[] = [];
  const trainer = new Trainer(configuration, sampler, new IPO(system, { beta: 0.1 }), {
    onStep: (record) => steps.push(record),
  });
  try {
    await trainer.train();
  } finally {
    trainer.dispose();
    system.dispose();
  }
  return { steps, graphs };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const folder = process.argv[2];
  const { steps, graphs } = await trainIPO(folder === undefined ? {} : { folder, trainingSteps: 100 });
  for (const record of steps) console.log(`step ${record.step}: loss ${record.loss}`);
  for (const node of graphs.at(-1)?.path() ?? []) {
    const own = node instanceof BackedUpNode ? node.ownReward : NaN;
    console.log(`${own.toFixed(3)} alone, ${node.reward.toFixed(3)} with its future: ${visible(node.probe)}`);
  }
}
