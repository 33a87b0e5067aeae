import { Adagrad, embedding, keep, noGrad, scope, tensor, zeros, type Tensor } from "@astra-rl/torch";
import { hashedNgrams } from "astra-rl";
import { drawLabelled } from "../labelled/draw.js";
import { SeededStream } from "../seeded-stream.js";

/** Contents of `scorer.json`; see `LearnedScorer`. */
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
/** Small, so that frequent features converge early and leave little for rare ones to explain. */
const BATCH = 16;
const LEARNING_RATE = 0.05;

export interface TrainedScorer {
  /** [1, buckets] */
  readonly weight: Tensor;
  /** [1] */
  readonly bias: Tensor;
}

/**
 * Logistic regression over the distinct hashed n-grams of a text, fitted to the share of readers who rate it as rude.
 */
export function trainScorer(seed: number, log: (line: string) => void): TrainedScorer {
  const stream = new SeededStream(seed, "world/labelled");
  const random = () => stream.uniform();
  const examples = Array.from({ length: EXAMPLES }, () => {
    const { text, rude } = drawLabelled(random);
    return { features: hashedNgrams(text, SCORER_CONFIGURATION), rude };
  });
  const { buckets } = SCORER_CONFIGURATION;
  // The last row is for padding and kept at 0.
  const weight = zeros([buckets + 1, 1]).requiresGrad_();
  const bias = zeros([1]).requiresGrad_();
  const steps = Math.ceil((EXAMPLES * EPOCHS) / BATCH);
  // Adagrad gives rare features, most of a text's, larger steps; the frequent ones converge early.
  const optimizer = new Adagrad([weight, bias], { learningRate: LEARNING_RATE });
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
    optimizer.step();
    optimizer.zeroGrad();
    if ((step + 1) % 2000 === 0) log(`step ${step + 1}/${steps}: loss ${loss.toFixed(4)}`);
  }
  optimizer.dispose();
  return noGrad(() =>
    scope(() => ({
      weight: keep(weight.detach().narrow(0, 0, buckets).transpose(0, 1).contiguous()),
      bias: keep(bias.detach().clone()),
    })),
  );
}
