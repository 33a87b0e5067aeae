import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { openSafetensors, UsageError } from "@astra-rl/torch";
import { messageOf, requireLoaded, Scorer, type Loads, type ScoreOutcome } from "../core/index.js";
import { hashedNgrams, type HashedNgramOptions } from "../text/index.js";

/** `scorer.json` of a learned scorer's folder. */
export interface LearnedScorerConfiguration extends HashedNgramOptions {
  /** Version of the folder's format. */
  version: 1;
  kind: "hashed-ngram-logistic";
  name: string;
  /** Labels in the order of the weight's rows; the first is the score. */
  labels: readonly string[];
}

export interface LearnedScorerWeights {
  /** [labels, buckets], row-major. */
  weight: Float32Array;
  /** [labels] */
  bias: Float32Array;
}

/**
 * Logistic regression on hashed word and character n-grams: the probability of label l is sigmoid(bias[l] + Σ over the
 * text's distinct features f of weight[l, f]).
 *
 * Each feature counts once, however often it occurs, and there is no length normalization, so that a harmful phrase
 * stays harmful in a long text.
 */
export class LearnedScorer extends Scorer {
  readonly name: string;
  override readonly labelNames: readonly string[];
  readonly configuration: LearnedScorerConfiguration;
  readonly #weights: LearnedScorerWeights;

  /** @throws UsageError when weights and configuration disagree */
  constructor(configuration: LearnedScorerConfiguration, weights: LearnedScorerWeights) {
    super();
    const made = new.target.name;
    requireLoaded(made, weights, `${made}.load(folder)`);
    const { labels, buckets, name } = configuration;
    if (weights.weight.length !== labels.length * buckets || weights.bias.length !== labels.length) {
      throw new UsageError(
        `${name}: ${labels.length} labels and ${buckets} buckets need ${labels.length * buckets} weights and ` +
          `${labels.length} biases, got ${weights.weight.length} and ${weights.bias.length}`,
      );
    }
    for (const [what, values] of Object.entries(weights) as [string, Float32Array][]) {
      if (!values.every(Number.isFinite)) throw new UsageError(`${name}: every ${what} must be finite`);
    }
    this.name = name;
    this.labelNames = labels;
    this.configuration = configuration;
    this.#weights = weights;
  }

  /**
   * Reads a folder with `scorer.json` and `scorer.safetensors` (float32 tensors `weight` [labels, buckets] and `bias`
   * [labels]).
   */
  static async load<T extends LearnedScorer = LearnedScorer>(
    this: Loads<T, [configuration: LearnedScorerConfiguration, weights: LearnedScorerWeights]>,
    folder: string,
  ): Promise<T> {
    const { configuration, weights } = await readLearnedScorer(folder);
    return new this(configuration, weights);
  }

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return Promise.resolve(texts.map((text) => this.#scoreOne(text)));
  }

  #scoreOne(text: string): ScoreOutcome {
    const features = hashedNgrams(text, this.configuration);
    const { weight, bias } = this.#weights;
    const probabilities = this.labelNames.map((_, label) => {
      let logit = bias[label]!;
      for (const feature of features) logit += weight[label * this.configuration.buckets + feature]!;
      return 1 / (1 + Math.exp(-logit));
    });
    const labels = Object.fromEntries(this.labelNames.map((label, index) => [label, probabilities[index]!]));
    return { score: probabilities[0]!, labels };
  }
}

/** Reads and checks the folder of a learned scorer. */
export async function readLearnedScorer(
  folder: string,
): Promise<{ configuration: LearnedScorerConfiguration; weights: LearnedScorerWeights }> {
  const path = join(folder, "scorer.json");
  let parsed: unknown;
  try {
    parsed = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    throw new UsageError(`${path}: cannot read the scorer's configuration: ${messageOf(error)}`, {
      cause: error,
    });
  }
  const configuration = checkConfiguration(parsed, path);
  const file = openSafetensors(join(folder, "scorer.safetensors"));
  try {
    const read = (name: string, shape: readonly number[]) => {
      const entry = file.tensors.get(name);
      if (entry === undefined || entry.dtype !== "float32" || entry.shape.join() !== shape.join()) {
        throw new UsageError(
          `${folder}/scorer.safetensors: needs "${name}" as float32 [${shape.join(", ")}], got ` +
            (entry === undefined ? "none" : `${entry.dtype} [${entry.shape.join(", ")}]`),
        );
      }
      const tensor = file.read(name);
      try {
        return tensor.toTypedArray() as Float32Array;
      } finally {
        tensor.dispose();
      }
    };
    const { labels, buckets } = configuration;
    return {
      configuration,
      weights: { weight: read("weight", [labels.length, buckets]), bias: read("bias", [labels.length]) },
    };
  } finally {
    file.close();
  }
}

function checkConfiguration(value: unknown, path: string): LearnedScorerConfiguration {
  const fail = (rule: string): never => {
    throw new UsageError(`${path}: ${rule}`);
  };
  if (typeof value !== "object" || value === null) return fail("must hold an object");
  const fields = value as Record<string, unknown>;
  if (fields["version"] !== 1) fail(`version must be 1, got ${JSON.stringify(fields["version"])}`);
  if (fields["kind"] !== "hashed-ngram-logistic") {
    fail(`kind must be "hashed-ngram-logistic", got ${JSON.stringify(fields["kind"])}`);
  }
  if (typeof fields["name"] !== "string" || fields["name"] === "") fail("name must be a string");
  const buckets = fields["buckets"];
  if (typeof buckets !== "number" || !Number.isInteger(Math.log2(buckets)) || buckets > 2 ** 24) {
    fail(`buckets must be a power of two of at most 2^24, got ${JSON.stringify(buckets)}`);
  }
  const labels = fields["labels"];
  if (!Array.isArray(labels) || labels.length === 0 || !labels.every((label) => typeof label === "string")) {
    fail("labels must be a non-empty array of strings");
  }
  for (const key of ["wordNgrams", "characterNgrams"]) {
    const lengths = fields[key];
    if (
      !Array.isArray(lengths) ||
      !lengths.every((length) => Number.isInteger(length) && length >= 1 && length <= 8)
    ) {
      fail(`${key} must be an array of whole numbers from 1 to 8, got ${JSON.stringify(lengths)}`);
    }
  }
  return value as LearnedScorerConfiguration;
}
