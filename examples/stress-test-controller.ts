// A system without any language model: the tester learns which likely gusts of wind push a car out of its lane.
//
//   npx tsx examples/stress-test-controller.ts
//
// States are numbers (offset from the middle of the lane in metres, steps driven), a probe is the index of a gust, and the
// target is a controller that steers back. Everything else (sampler, credit, algorithm, trainer) is as with language models.
import { pathToFileURL } from "node:url";
import { keyedUniform } from "@astra-rl/lm";
import { Generator, keep, linear, noGrad, randn, scope, tensor, zeros, type Tensor } from "@astra-rl/torch";
import {
  ASTSampler,
  backUp,
  type Credit,
  DPO,
  PPO,
  rewardCredit,
  TokenTable,
  Trainer,
  TrainingConfiguration,
  ValueFunctionSystem,
  type NodeKey,
} from "astra-rl";

/** Offset, steps driven, and for the target the gust that comes next. */
export type Road = readonly number[];

const GUSTS = [-2, -1, 0, 1, 2];
/** The natural probability of each gust, which defines "likely" here. */
const NATURE = [0.05, 0.2, 0.5, 0.2, 0.05];
const LANE = 4;
const STEPS = 6;
const HIDDEN = 16;

/** A layer of trainable, randomly initialized weights. */
const trained = (shape: number[], generator: Generator) =>
  keep(randn(shape, { generator }).mul(0.5)).requiresGrad_();

export class LaneKeeping extends ValueFunctionSystem<Road, number> {
  readonly #hidden: Tensor;
  /** Initially zero, so that every gust is equally likely and the baseline is constant. */
  readonly #policy = keep(zeros([GUSTS.length, HIDDEN])).requiresGrad_();
  readonly #criticHidden: Tensor;
  readonly #critic = keep(zeros([1, HIDDEN])).requiresGrad_();

  constructor(seed = 0) {
    super();
    const generator = new Generator(seed);
    this.#hidden = scope(() => trained([HIDDEN, 3], generator));
    this.#criticHidden = scope(() => trained([HIDDEN, 3], generator));
    generator.dispose();
  }

  override async rolloutPromptWithTester(contexts: readonly Road[], keys: readonly NodeKey[] = []) {
    const rows = noGrad(() => scope(() => this.#logits(contexts).softmax(-1).toArray())) as number[][];
    return rows.map((probabilities, row) => {
      const key = keys[row] ?? { seed: 0, episode: 0, node: row };
      return drawn(probabilities, keyedUniform({ ...key, stream: "tester" }, key.draw ?? 0));
    });
  }

  /** The controller corrects three tenths of the offset at each step. */
  override async rolloutPromptWithTarget(prompts: readonly Road[]): Promise<Road[]> {
    return prompts.map(([offset, steps, gust]) => [0.7 * offset! + GUSTS[gust!]!, steps! + 1]);
  }

  override promptForTarget([offset, steps]: Road, gust: number): Road {
    return [offset!, steps!, gust];
  }

  override advance(_: Road, __: number, response: Road): Road {
    return response;
  }

  override emptyResponse(): Road {
    return [0, 0];
  }

  /** How close the car came to the edge, from 0 to 1, minus a penalty for unlikely gusts. */
  override async reward(_: readonly Road[], gusts: readonly number[], responses: readonly Road[]) {
    return responses.map(([offset], row) => {
      const surprise = Math.log(NATURE[2]!) - Math.log(NATURE[gusts[row]!]!);
      return Math.min(1, Math.abs(offset!) / LANE) ** 2 - 0.05 * surprise;
    });
  }

  override async getTesterLogprobs(contexts: readonly Road[], gusts: readonly number[]) {
    return scope(() => chosen(this.#logits(contexts).logSoftmax(-1), gusts));
  }

  override async getBaselineLogprobs(_: readonly Road[], gusts: readonly number[]) {
    return TokenTable.ofRows(gusts.map(() => [-Math.log(GUSTS.length)]));
  }

  override async getTargetLogprobs(_: readonly Road[], gusts: readonly number[]) {
    return TokenTable.ofRows(gusts.map((gust) => [Math.log(NATURE[gust]!)]));
  }

  override async value(contexts: readonly Road[]) {
    return scope(() => {
      const values = linear(linear(features(contexts), this.#criticHidden).tanh(), this.#critic);
      return new TokenTable(
        values,
        contexts.map(() => 1),
      );
    });
  }

  override parameters(): Iterable<Tensor> {
    return [this.#hidden, this.#policy, this.#criticHidden, this.#critic];
  }

  override valueParameters(): Iterable<Tensor> {
    return [this.#criticHidden, this.#critic];
  }

  override dispose(): void {
    for (const parameter of this.parameters()) parameter.dispose();
  }

  /** [B, gusts] */
  #logits(contexts: readonly Road[]): Tensor {
    return linear(linear(features(contexts), this.#hidden).tanh(), this.#policy);
  }
}

/** [B, 3]: offset and time as shares, and a constant instead of a bias. */
function features(contexts: readonly Road[]): Tensor {
  return tensor(contexts.map(([offset, steps]) => [offset! / LANE, steps! / STEPS, 1]));
}

/** The column of each row's gust, as a table with one "token" per row. */
function chosen(logprobs: Tensor, gusts: readonly number[]): TokenTable {
  const columns = tensor(
    gusts.map((gust) => [gust]),
    { dtype: "int64" },
  );
  return new TokenTable(
    logprobs.gather(1, columns),
    gusts.map(() => 1),
  );
}

function drawn(probabilities: readonly number[], uniform: number): number {
  let rest = uniform;
  const at = probabilities.findIndex((probability) => (rest -= probability) < 0);
  return at < 0 ? probabilities.length - 1 : at;
}

/** Share of 200 drives that leave the lane, and the likelihood of their gusts in nats per gust. */
export async function drive(system: LaneKeeping) {
  const sampler = new ASTSampler<Road, number>(system, [[0, 0]], { width: 1, depth: STEPS });
  const starts = Array.from({ length: 200 }, (_, episode) => ({ seed: 9, episode }));
  const graphs = await sampler.rolloutMany(starts);
  const drives = graphs.map((graph) => [...graph.nodes()]);
  const left = drives.filter((turns) => turns.some(({ response }) => Math.abs(response[0]!) >= LANE));
  const gusts = drives.flat().map(({ probe }) => -Math.log(NATURE[probe]!));
  return { failures: left.length / drives.length, nll: gusts.reduce((a, b) => a + b, 0) / gusts.length };
}

interface Setting {
  width: number;
  numEpisodesPerExperience: number;
  credit: Credit<Road, number>;
}

/** Settings of both algorithms: PPO learns from single drives, DPO from siblings with back-up credit. */
const SETTINGS: Readonly<Record<"dpo" | "ppo", Setting>> = {
  dpo: { width: 2, numEpisodesPerExperience: 4, credit: backUp({ op: "max", gamma: 0.9 }) },
  ppo: { width: 1, numEpisodesPerExperience: 64, credit: rewardCredit },
};

export async function stressTest(algorithm: keyof typeof SETTINGS, trainingSteps = 40) {
  const { width, numEpisodesPerExperience, credit } = SETTINGS[algorithm];
  const system = new LaneKeeping();
  const sampler = new ASTSampler<Road, number>(system, [[0, 0]], { width, depth: STEPS });
  const settings = { trainingSteps, numEpisodesPerExperience, learningRate: 0.02, batchSize: 128 };
  const configuration = new TrainingConfiguration(settings);
  const trainer =
    algorithm === "dpo"
      ? new Trainer(configuration, sampler, new DPO(system, { beta: 0.3 }), { credit })
      : new Trainer(
          configuration,
          sampler,
          new PPO(system, { epochs: 4, klCoefficient: 0.01, gaeLambda: 0.95, normalizeAdvantages: true }),
          { credit },
        );
  try {
    const before = await drive(system);
    await trainer.train();
    return { before, after: await drive(system) };
  } finally {
    trainer.dispose();
    system.dispose();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  for (const algorithm of ["dpo", "ppo"] as const) {
    const { before, after } = await stressTest(algorithm);
    for (const [when, { failures, nll }] of Object.entries({ before, after })) {
      console.log(
        `${algorithm} ${when}: ${(100 * failures).toFixed(1)} % leave the lane, ${nll.toFixed(2)} nats per gust`,
      );
    }
  }
}
