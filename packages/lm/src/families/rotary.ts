import {
  arange,
  cast,
  cat,
  dispose,
  embedding,
  isLoopable,
  keep,
  rotaryEmbedding,
  scope,
  tensor,
  type Device,
  type DType,
  type Tensor,
} from "@astra-rl/torch";
import type { JsonFields } from "../json-fields.js";

/**
 * Rotary position embeddings (Su et al. 2021, arXiv 2104.09864) and the context extensions that checkpoints use.
 *
 * config.json has two formats: `rope_theta` and `rope_scaling` (its kind under "rope_type" or, older, "type"), or all
 * of it in `rope_parameters`.
 */
export interface RotarySettings {
  /** Rotated channels of each head; the others keep their values. */
  dimension: number;
  /** Which channels are rotated together: those of the first and the second half, or adjacent ones. */
  pairs: "halves" | "adjacent";
  theta: number;
  /**
   * `dynamic` changes frequencies only beyond the trained context length, which this package never exceeds,
   * so it equals `default` here.
   */
  kind: "default" | "linear" | "dynamic" | "llama3" | "longrope" | "yarn";
  /** Context extension factor (linear, llama3, yarn). */
  factor: number;
  /**
   * llama3: wavelengths longer than original/low are divided by `factor`, those shorter than original/high are kept.
   */
  lowFrequencyFactor: number;
  highFrequencyFactor: number;
  originalContextLength: number;
  /** longrope: divisor of the frequency of each channel pair; empty for other kinds. */
  shortFactors: readonly number[];
  /** yarn: channel pairs up to the first keep their frequencies; from the second on these are divided by `factor`. */
  ramp: readonly [first: number, last: number];
  /** longrope, yarn: factor of cosines and sines, and so of queries and keys. */
  attentionFactor: number;
  /** Queries grow by 1 + beta · log(1 + ⌊position / period⌋), as in Llama 4; null = not at all. */
  queryGrowth: { readonly beta: number; readonly period: number } | null;
  /**
   * Number of positions for which these settings hold. longrope has other frequencies for longer texts, with
   * which the probability of a token would depend on how many tokens follow it.
   */
  contextLength: number;
}

/**
 * Reads the settings of config.json.
 *
 * @param options.dimension rotated channels of each head
 * @param options.parameters the object in the newer format. Default: that in `rope_parameters`
 * @param options.scaling the object that names the kind. Default: `parameters`, else that in `rope_scaling`
 * @param options.thetaKey where the older format has theta. Default "rope_theta"
 * @param options.thetaDefault theta where nothing gives it. Default 10000
 * @param options.pairs default "halves"
 * @param options.growsQueries whether the object says how queries grow. Default false
 * @param options.former former names of kinds, by the name. Default: none
 */
export function parseRotarySettings(
  fields: JsonFields,
  options: {
    dimension: number;
    parameters?: JsonFields | null;
    scaling?: JsonFields | null;
    thetaKey?: string;
    thetaDefault?: number;
    former?: Readonly<Record<string, string>>;
    pairs?: RotarySettings["pairs"];
    growsQueries?: boolean;
  },
): RotarySettings {
  const { dimension, thetaKey = "rope_theta", thetaDefault = 10000, former = {}, pairs = "halves" } = options;
  // In transformers the older spelling has precedence where both are there.
  const { parameters = ropeScaling(fields) ?? fields.nested("rope_parameters") } = options;
  const { scaling = parameters ?? ropeScaling(fields) } = options;
  const theta =
    parameters?.positive("rope_theta", { fallback: null }) ??
    fields.positive(thetaKey, { fallback: thetaDefault });
  const settings: RotarySettings = {
    dimension,
    theta,
    kind: "default",
    factor: 1,
    lowFrequencyFactor: 1,
    highFrequencyFactor: 1,
    originalContextLength: 1,
    shortFactors: [],
    ramp: [0, 0],
    attentionFactor: 1,
    pairs,
    queryGrowth: null,
    contextLength: fields.integer("max_position_embeddings"),
  };
  if (scaling === null) return settings;
  const key = scaling.has("rope_type") ? "rope_type" : "type";
  const named = scaling.string(key, { fallback: "default" });
  const kind: string = former[named] ?? named;
  // Each kind of layer has its own object: values next to it are then ignored.
  const beside = options.parameters === undefined ? fields : null;
  if (options.growsQueries === true) {
    const beta = scaling.field<number, never>(
      "out-of-range",
      "llama_4_scaling_beta",
      {},
      "a number of at least 0",
      isNotNegative,
    );
    settings.queryGrowth = { beta, period: originalContextLength(beside, scaling, settings.contextLength) };
  }
  switch (kind) {
    case "default":
    case "dynamic":
      return { ...settings, kind };
    case "linear":
      return { ...settings, kind, factor: scaling.positive("factor") };
    case "llama3": {
      const lowFrequencyFactor = scaling.positive("low_freq_factor");
      const highFrequencyFactor = scaling.positive("high_freq_factor");
      if (highFrequencyFactor <= lowFrequencyFactor)
        throw scaling.error(
          "out-of-range",
          "high_freq_factor",
          `greater than low_freq_factor (${lowFrequencyFactor})`,
        );
      return {
        ...settings,
        kind,
        factor: scaling.positive("factor"),
        lowFrequencyFactor,
        highFrequencyFactor,
        originalContextLength: originalContextLength(beside, scaling, settings.contextLength),
      };
    }
    case "longrope":
    case "su": // its former name
      return { ...settings, kind: "longrope", ...parseLongRope(beside, scaling, settings) };
    case "yarn":
      return { ...settings, kind, ...parseYarn(beside, scaling, settings) };
    default:
      throw scaling.error(
        "unsupported-type",
        key,
        `one of "default", "linear", "dynamic", "llama3", "longrope", "yarn"`,
      );
  }
}

const isNotNegative = (value: unknown): value is number => typeof value === "number" && value >= 0;

/** "rope_scaling"; null if it is absent or empty. */
function ropeScaling(fields: JsonFields): JsonFields | null {
  const scaling = fields.nested("rope_scaling");
  return scaling === null || Object.keys(scaling.values).length === 0 ? null : scaling;
}

/** The context length before an extension. Values next to the object have precedence over those in it. */
function originalContextLength(
  beside: JsonFields | null,
  scaling: JsonFields,
  contextLength: number,
): number {
  const key = "original_max_position_embeddings";
  return beside?.integer(key, { fallback: null }) ?? scaling.integer(key, { fallback: contextLength });
}

/** YaRN (Peng et al. 2023, arXiv 2309.00071). */
function parseYarn(
  beside: JsonFields | null,
  scaling: JsonFields,
  { dimension, contextLength, theta }: RotarySettings,
): Pick<RotarySettings, "factor" | "ramp" | "attentionFactor"> {
  const original = originalContextLength(beside, scaling, contextLength);
  const factor = scaling.positive("factor", { fallback: contextLength / original });
  // As in transformers, 0 means the default here.
  const optional = (name: string, fallback: number) =>
    scaling.values[name] === 0 ? fallback : scaling.positive(name, { fallback });
  const [fast, slow] = [optional("beta_fast", 32), optional("beta_slow", 1)];
  const [scale, scaleOfAll] = [optional("mscale", 0), optional("mscale_all_dim", 0)];
  const temperature = (weight: number) => (factor <= 1 ? 1 : 0.1 * weight * Math.log(factor) + 1);
  const inferred =
    scale !== 0 && scaleOfAll !== 0 ? temperature(scale) / temperature(scaleOfAll) : temperature(1);
  /** The channel pair that turns so many times within the original context length. */
  const pairOf = (turns: number) =>
    (dimension * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  // transformers looks for it where kinds of layers have their names.
  const isWhole = beside === null || scaling.boolean("truncate", { fallback: true });
  const first = isWhole ? Math.floor(pairOf(fast)) : pairOf(fast);
  const last = isWhole ? Math.ceil(pairOf(slow)) : pairOf(slow);
  return {
    factor,
    ramp: [Math.max(first, 0), Math.min(last, dimension - 1)],
    attentionFactor: scaling.positive("attention_factor", { fallback: inferred }),
  };
}

/** LongRoPE (Ding et al. 2024, arXiv 2402.13753), for texts of up to the original context length. */
function parseLongRope(
  beside: JsonFields | null,
  scaling: JsonFields,
  { dimension, contextLength }: RotarySettings,
): Pick<RotarySettings, "shortFactors" | "attentionFactor" | "contextLength"> {
  const pairs = dimension / 2;
  const shortFactors = scaling.field<number[], never>(
    "invalid-factors",
    "short_factor",
    {},
    `a list of ${pairs} numbers greater than 0`,
    (value): value is number[] =>
      Array.isArray(value) &&
      value.length === pairs &&
      value.every((factor) => typeof factor === "number" && factor > 0),
  );
  const original = originalContextLength(beside, scaling, contextLength);
  const factor = scaling.positive("factor", { fallback: contextLength / original });
  return {
    shortFactors,
    attentionFactor: scaling.positive("attention_factor", {
      fallback: factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(original)),
    }),
    contextLength: Math.min(original, contextLength),
  };
}

/**
 * Rotated channels of each head where only a part of them is: a share of the head size, which `rope_parameters` has
 * as "partial_rotary_factor" and the older format under `key`.
 */
export function partialRotaryDimension(
  fields: JsonFields,
  headDimension: number,
  { key, fallback }: { key: string; fallback: number },
): number {
  const parameters = fields.nested("rope_parameters");
  const newer = parameters?.has("partial_rotary_factor") === true;
  const [from, name] = newer ? [parameters, "partial_rotary_factor"] : [fields, key];
  const dimension = Math.floor(headDimension * from.positive(name, { fallback }));
  if (dimension >= 2 && dimension % 2 === 0 && dimension <= headDimension) return dimension;
  throw from.error(
    "indivisible",
    name,
    `a share of the head size (${headDimension}) that is an even number of channels`,
  );
}

/** Angle per position of each rotated channel pair, radians per token. */
export function inverseFrequencies(settings: RotarySettings): number[] {
  const { dimension, theta, kind, factor, shortFactors, ramp } = settings;
  const { lowFrequencyFactor, highFrequencyFactor, originalContextLength } = settings;
  return Array.from({ length: dimension / 2 }, (_, pair) => {
    const frequency = theta ** ((-2 * pair) / dimension);
    if (kind === "linear") return frequency / factor;
    if (kind === "longrope") return frequency / shortFactors[pair]!;
    if (kind === "yarn") {
      const [first, last] = ramp;
      const width = last === first ? 0.001 : last - first;
      const share = Math.min(Math.max((pair - first) / width, 0), 1);
      return (1 - share) * frequency + (share * frequency) / factor;
    }
    if (kind !== "llama3") return frequency;
    const wavelength = (2 * Math.PI) / frequency;
    if (wavelength < originalContextLength / highFrequencyFactor) return frequency;
    if (wavelength > originalContextLength / lowFrequencyFactor) return frequency / factor;
    // Between the two, interpolate by the number of wavelengths in the original context length.
    const smooth =
      (originalContextLength / wavelength - lowFrequencyFactor) / (highFrequencyFactor - lowFrequencyFactor);
    return (1 - smooth) * (frequency / factor) + smooth * frequency;
  });
}

/**
 * Cosines and sines of angles, for R rotated channels of each head: as the kernel of the CPU reads them, [B, T, R/2] each;
 * elsewhere for all channels, [B, T, 1, R], sines of the first half negated.
 */
export interface Rotation {
  cosine: Tensor;
  sine: Tensor;
  /** Factor of the queries, [..., 1]; absent = 1. */
  queryFactor?: Tensor;
}

/**
 * The tables of cosines and sines cover the whole context window up to this size, which trained models stay
 * within. For longer ones they grow with the texts, since nothing backs such a size in config.json.
 */
export const WHOLE_TABLE = 2 ** 18;

/** Cosines and sines by position, made at the first use. */
export class RotaryTables {
  /** [rows, R/2] in `dtype`, or [rows, R]: see Rotation. */
  #made: Rotation | null = null;

  constructor(
    private readonly settings: RotarySettings,
    private readonly options: { contextLength: number; dtype: DType; device: Device },
  ) {}

  /** @param positions int64 [B, T] */
  at(positions: Tensor): Rotation {
    const tables = Object.entries(this.#reaching(positions)) as [keyof Rotation, Tensor][];
    const isWhole = !isLoopable(this.options);
    const rows = tables.map(([name, table]) => {
      const values = embedding(table, positions);
      return [name, isWhole && name !== "queryFactor" ? values.unsqueeze(2) : values];
    });
    return Object.fromEntries(rows) as unknown as Rotation;
  }

  dispose(): void {
    dispose(this.#made);
    this.#made = null;
  }

  #reaching(positions: Tensor): Rotation {
    const { contextLength } = this.options;
    const made = this.#made;
    const rows = made?.cosine.size(0) ?? 0;
    if (made !== null && rows === contextLength) return made;
    const reached = contextLength <= WHOLE_TABLE ? contextLength : scope(() => positions.max().item()) + 1;
    if (made !== null && reached <= rows) return made;
    // At least doubled, so that the tables are not rebuilt for every token of a growing text.
    const wanted = Math.min(contextLength, Math.max(reached, 2 * rows, WHOLE_TABLE));
    const tables = this.#make(wanted);
    dispose(made);
    return (this.#made = tables);
  }

  #make(rows: number): Rotation {
    const { dtype, device } = this.options;
    const { attentionFactor, queryGrowth } = this.settings;
    return keep(
      scope(() => {
        const frequencies = tensor(inverseFrequencies(this.settings), { device });
        const positions = arange(0, rows, 1, { dtype: "float32", device });
        const angles = positions.unsqueeze(1).mul(frequencies.unsqueeze(0)); // [rows, R/2]
        const table = (values: Tensor) =>
          cast(attentionFactor === 1 ? values : values.mul(attentionFactor), dtype);
        const [cosines, sines] = [table(angles.cos()), table(angles.sin())];
        const tables = isLoopable({ device, dtype })
          ? { cosine: cosines, sine: sines }
          : { cosine: cat([cosines, cosines], 1), sine: cat([sines.neg(), sines], 1) };
        if (queryGrowth === null) return tables;
        const { beta, period } = queryGrowth;
        const growth = positions.div(period).floor().add(1).log().mul(beta).add(1);
        return { ...tables, queryFactor: cast(growth.unsqueeze(1), dtype) };
      }),
    );
  }
}

/**
 * Rotates the first R channels of each head. Adjacent pairs are moved to the halves: the products of queries and keys do not
 * depend on the order of channels.
 *
 * @param states [B, T, H, E], R ≤ E; with one token also [B, H, T, E]
 */
export function rotated(
  states: Tensor,
  { cosine, sine }: Rotation,
  pairs: RotarySettings["pairs"] = "halves",
): Tensor {
  const isWhole = !isLoopable(states);
  const dimension = cosine.size(-1) * (isWhole ? 1 : 2);
  const rest = states.size(-1) - dimension;
  const byHalves = (given: Tensor) =>
    isWhole
      ? given.mul(cosine).addcmul(given.roll([dimension / 2], [-1]), sine)
      : rotaryEmbedding(given, cosine, sine);
  const turn = (given: Tensor) => {
    if (pairs === "halves") return byHalves(given);
    const [B, T, H] = given.shape as [number, number, number];
    const apart = given.reshape([B, T, H, dimension / 2, 2]).transpose(-1, -2);
    return byHalves(apart.reshape([B, T, H, dimension]));
  };
  if (rest === 0) return turn(states);
  const [turned, kept] = states.split([dimension, rest], -1) as [Tensor, Tensor];
  return cat([turn(turned), kept], -1);
}
