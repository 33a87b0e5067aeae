import { KeyedStream } from "@astra-rl/lm";
import {
  AdamW,
  embedding,
  keep,
  linearSchedule,
  noGrad,
  scope,
  tensor,
  zeros,
  type Tensor,
} from "@astra-rl/torch";
import { hashedNgrams } from "../../src/scorer/hashed-ngrams.js";
import { drawLabelled } from "../labelled/draw.js";

/** What `scorer.json` says; see `LearnedScorer`. */
export const SCORER_CONFIGURATION = {
  version: 1,
  kind: "hashed-ngram-logistic",
  name: "embedded-toxicity",
  labels: ["toxicity"],
  buckets: 1 << 16,
  wordNgrams: [1, 2, 3],
  characterNgrams: [4],
} as const;

const EXAMPLES = 40_000;
const EPOCHS = 4;
const BATCH = 128;
const LEARNING_RATE = 0.02;
/** Pulls weights of rare features towards 0, so that words which training hardly saw count for little. */
const WEIGHT_DECAY = 0.02;

export interface TrainedScorer {
  /** [1, buckets] */
  readonly weight: Tensor;
  /** [1] */
  readonly bias: Tensor;
}

/** Logistic regression over the distinct hashed n-grams of a text, fitted to the share of readers who call it rude. */
export function trainScorer(seed: number, log: (line: string) => void): TrainedScorer {
  const stream = new KeyedStream(seed, "world/labelled");
  const random = () => stream.uniform();
  const examples = Array.from({ length: EXAMPLES }, () => {
    const { text, rude } = drawLabelled(random);
    return { features: hashedNgrams(text, SCORER_CONFIGURATION), rude };
  });
  const { buckets } = SCORER_CONFIGURATION;
  // The last row stands for padding and is held at 0.
  const weight = zeros([buckets + 1, 1]).requiresGrad_();
  const bias = zeros([1]).requiresGrad_();
  const steps = (EXAMPLES / BATCH) * EPOCHS;
  const schedule = linearSchedule({ totalSteps: Math.ceil(steps) });
  const optimizers = [
    new AdamW([weight], { learningRate: LEARNING_RATE, weightDecay: WEIGHT_DECAY }),
    new AdamW([bias], { learningRate: LEARNING_RATE, weightDecay: 0 }),
  ];
  for (let step = 0; step < steps; step++) {
    const batch = Array.from({ length: BATCH }, () => examples[stream.integer(EXAMPLES)]!);
    const width = Math.max(...batch.map(({ features }) => features.length));
    const ids = new BigInt64Array(BATCH * width).fill(BigInt(buckets));
    batch.forEach(({ features }, row) => features.forEach((id, i) => (ids[row * width + i] = BigInt(id))));
    const loss = scope(() => {
      const rude = tensor(Float32Array.from(batch, (example) => example.rude));
      const logits = embedding(weight, tensor(ids, { shape: [BATCH, width] }))
        .sum([1, 2])
        .add(bias);
      // Cross-entropy with a probability as target: −y·log σ(z) − (1 − y)·log σ(−z).
      const value = logits
        .logSigmoid()
        .mul(rude)
        .add(logits.neg().logSigmoid().mul(rude.neg().add(1)))
        .mean()
        .neg();
      value.backward();
      return value.item();
    });
    noGrad(() => scope(() => weight.grad!.select(0, buckets).zero_()));
    for (const optimizer of optimizers) {
      optimizer.learningRate = LEARNING_RATE * schedule(step);
      optimizer.step();
      optimizer.zeroGrad();
    }
    if ((step + 1) % 250 === 0) log(`step ${step + 1}/${Math.ceil(steps)}: loss ${loss.toFixed(4)}`);
  }
  for (const optimizer of optimizers) optimizer.dispose();
  return noGrad(() =>
    scope(() => ({
      weight: keep(weight.detach().narrow(0, 0, buckets).transpose(0, 1).contiguous()),
      bias: keep(bias.detach().clone()),
    })),
  );
}
