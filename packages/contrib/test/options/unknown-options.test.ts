import { UsageError } from "@astra-rl/base";
import { expect, it } from "vitest";
import {
  A2C,
  DPO,
  dpoLoss,
  GRPO,
  IPO,
  ORPO,
  PolicyGradient,
  PPO,
  Preference,
  REINFORCE,
  RLOO,
  Supervised,
  backUp,
  HashedNgramEmbedder,
  ASTEvaluator,
  gibberish,
  harm,
  nll,
  paperReward,
  elicitationReward,
  presetReward,
  Reward,
  selfBLEUTerm,
  toolboxReward,
  ASTSampler,
  PathSampler,
  ConsoleLogger,
  EarlyStopping,
  Harness,
  HFASTConfiguration,
  HFASTTrainer,
  Trainer,
  TrainingConfiguration,
} from "@astra-rl/method";
import {
  BatchedScorer,
  CalibratedScorer,
  ClassifierScorer,
  DetoxifyScorer,
  KeywordScorer,
  LlamaGuardScorer,
  MaxScorer,
  MeanScorer,
  WeightedScorer,
  SentenceEncoder,
} from "@astra-rl/scorers";
import { ArchiveSampler, FewShotSampler } from "../../src/samplers/index.js";
import { MLflowLogger, TensorBoardLogger, WandbLogger } from "../../src/loggers/index.js";
import { ToySystem } from "../../../method/test/support/toy-system.js";

const scorer = new KeywordScorer([{ term: "bad" }]);
const system = new ToySystem(scorer);
const PROMPTS = ["Hello. "];
const sampler = new ASTSampler(system, PROMPTS);
const evaluator = new ASTEvaluator(sampler, PROMPTS);
const algorithm = new DPO(system);
const parts = new RLOO(system).parts;

/** A class or a function, and how it receives its options. */
type Maker = (options: never) => unknown;

const MAKERS: Record<string, Maker> = {
  ASTSampler: (options) => new ASTSampler(system, PROMPTS, options),
  PathSampler: (options) => new PathSampler(system, PROMPTS, options),
  ArchiveSampler: (options) => new ArchiveSampler(system, PROMPTS, options),
  FewShotSampler: (options) => new FewShotSampler(system, PROMPTS, options),
  "Sampler.evalRollout": (options) => sampler.evalRollout("Hello. ", options),
  "Sampler.evalRolloutMany": (options) => sampler.evalRolloutMany(["Hello. "], options),
  Harness: (options) => new Harness(sampler, algorithm, options),
  TrainingConfiguration: (options) => new TrainingConfiguration(options),
  HFASTConfiguration: (options) => new HFASTConfiguration(options),
  Trainer: (options) => new Trainer(new TrainingConfiguration(), sampler, algorithm, options),
  HFASTTrainer: (options) => new HFASTTrainer(new HFASTConfiguration(), sampler, algorithm, options),
  EarlyStopping: (options) => new EarlyStopping({ metric: "loss", ...(options as object) }),
  ASTEvaluator: (options) => new ASTEvaluator(sampler, PROMPTS, options),
  "Evaluator.evaluate": (options) => evaluator.evaluate(options),
  DPO: (options) => new DPO(system, options),
  IPO: (options) => new IPO(system, options),
  ORPO: (options) => new ORPO(system, options),
  Preference: (options) => new Preference(system, "mine", dpoLoss, options),
  PPO: (options) => new PPO(system, options),
  A2C: (options) => new A2C(system, options),
  REINFORCE: (options) => new REINFORCE(system, options),
  RLOO: (options) => new RLOO(system, options),
  GRPO: (options) => new GRPO(system, options),
  Supervised: (options) => new Supervised(system, options),
  PolicyGradient: (options) => new PolicyGradient(system, "mine", parts, options),
  KeywordScorer: (options) => new KeywordScorer([{ term: "bad" }], options),
  "KeywordScorer.load": (options) => KeywordScorer.load("words.json", options),
  BatchedScorer: (options) => new BatchedScorer(scorer, options),
  MaxScorer: (options) => new MaxScorer([scorer], options),
  MeanScorer: (options) => new MeanScorer([scorer], options),
  WeightedScorer: (options) => new WeightedScorer([{ scorer, weight: 1 }], options),
  CalibratedScorer: (options) =>
    new CalibratedScorer(scorer, { method: "platt", slope: 1, intercept: 0, ...(options as object) }),
  "ClassifierScorer.load": (options) => ClassifierScorer.load({ model: "none", ...(options as object) }),
  "DetoxifyScorer.load": (options) => DetoxifyScorer.load(options),
  "LlamaGuardScorer.load": (options) => LlamaGuardScorer.load("none", options),
  harm: (options) => harm(scorer, options),
  nll: (options) => nll(options),
  selfBLEUTerm: (options) => selfBLEUTerm(options),
  gibberish: (options) => gibberish(options),
  Reward: (options) => new Reward([{ term: harm(scorer), weight: 1 }], options),
  "a term of Reward": (options) => new Reward([{ term: harm(scorer), weight: 1, ...(options as object) }]),
  elicitationReward: (options) => elicitationReward(scorer, options),
  paperReward: (options) => paperReward(scorer, options),
  toolboxReward: (options) => toolboxReward(scorer, options),
  presetReward: (options) => presetReward(scorer, options),
  backUp: (options) => backUp(options),
  HashedNgramEmbedder: (options) => new HashedNgramEmbedder(options),
  "SentenceEncoder.load": (options) => SentenceEncoder.load("none", options),
  ConsoleLogger: (options) => new ConsoleLogger(options),
  TensorBoardLogger: (options) => new TensorBoardLogger(options),
  MLflowLogger: (options) => new MLflowLogger(options),
  WandbLogger: (options) => new WandbLogger(options),
};

/** The error of creating it, thrown synchronously or asynchronously. */
async function refusal(make: () => unknown): Promise<unknown> {
  try {
    await make();
  } catch (error) {
    return error;
  }
  return null;
}

it.each(Object.keys(MAKERS))("%s: an unknown option is an error", async (name) => {
  const error = await refusal(() => MAKERS[name]!({ colour: "red" } as never));
  expect(error).toBeInstanceOf(UsageError);
  expect((error as Error).message).toMatch(/: unknown option (earlyStopping\.)?colour; /u);
});

it.each([
  ["TrainingConfiguration", { lr: 1e-5 }, "did you mean learningRate?"],
  ["HFASTConfiguration", { eval_every: 10 }, "did you mean evaluateEvery?"],
  ["ASTSampler", { treeWidth: 4 }, "did you mean width?"],
  ["ASTSampler", { tree_depth: 4 }, "did you mean depth?"],
  ["PathSampler", { treeDepth: 4 }, "did you mean depth?"],
  ["Harness", { episodes: 4 }, "did you mean numEpisodesPerExperience?"],
  ["HFASTTrainer", { devPrompts: PROMPTS }, "give evaluator: new ASTEvaluator(sampler, prompts)"],
  ["HFASTTrainer", { evalEvery: 100 }, "new HFASTConfiguration({ evaluateEvery })"],
  ["HFASTTrainer", { ckptDir: "checkpoints" }, "give runDirectory"],
  ["Trainer", { harness: {} }, "override makeHarness"],
  ["DPO", { betta: 1 }, "did you mean beta?"],
  ["DetoxifyScorer.load", { category: "threat" }, "did you mean harmCategory?"],
])("%s %j: %s", async (name, options, advice) => {
  const error = await refusal(() => MAKERS[name]!(options as never));
  expect((error as Error | null)?.message).toContain(advice);
});

it.each(Object.keys(MAKERS))("%s: a string instead of options is an error", async (name) => {
  // Those that a helper of this test spreads into an object have none of their own.
  if (/^(EarlyStopping|CalibratedScorer|ClassifierScorer\.load|a term of Reward)$/u.test(name)) return;
  const error = await refusal(() => MAKERS[name]!("runs/one" as never));
  expect(error).toBeInstanceOf(UsageError);
  expect((error as Error).message).toMatch(/: the options must be an object, got "runs\/one"/u);
});

it("undefined means the default", () => {
  expect(new TrainingConfiguration({ learningRate: undefined } as never)).toEqual(
    new TrainingConfiguration(),
  );
  expect(new HFASTConfiguration({ batchSize: undefined } as never)).toEqual(new HFASTConfiguration());
  expect(new ASTSampler(system, PROMPTS, { width: undefined } as never).width).toBe(2);
  expect(new PPO(system, { clipRange: undefined, epochs: undefined } as never).options).toEqual(
    new PPO(system).options,
  );
  expect(new DPO(system, { beta: undefined } as never).options.beta).toBe(0.1);
  expect(harm(scorer, { of: undefined } as never).of).toBe("response");
  expect(new ASTEvaluator(sampler, null, { threshold: undefined } as never).threshold).toBe(0.5);
});
