import { arange, tensor, type Device, type Tensor } from "@astra-rl/torch";
import type { JsonFields } from "../json-fields.js";

/**
 * Rotary position embeddings (Su et al. 2021, arXiv 2104.09864) and the context extensions that checkpoints use.
 *
 * config.json has two formats: `rope_theta` and `rope_scaling` (its kind under "rope_type" or, older, "type"), or all
 * of it in `rope_parameters`.
 */
export interface RotarySettings {
  theta: number;
  /**
   * `dynamic` changes frequencies only beyond the trained context length, which this package never exceeds,
   * so it equals `default` here.
   */
  kind: "default" | "linear" | "dynamic" | "llama3";
  /** Context extension factor (linear, llama3). */
  factor: number;
  /**
   * llama3: wavelengths longer than original/low are divided by `factor`, those shorter than original/high are kept.
   */
  lowFrequencyFactor: number;
  highFrequencyFactor: number;
  originalContextLength: number;
}

export function parseRotarySettings(fields: JsonFields): RotarySettings {
  const parameters = fields.nested("rope_parameters");
  const scaling = parameters ?? fields.nested("rope_scaling");
  const theta =
    parameters?.positive("rope_theta", { fallback: null }) ??
    fields.positive("rope_theta", { fallback: 10000 });
  const settings: RotarySettings = {
    theta,
    kind: "default",
    factor: 1,
    lowFrequencyFactor: 1,
    highFrequencyFactor: 1,
    originalContextLength: 1,
  };
  if (scaling === null) return settings;
  const key = scaling.has("rope_type") ? "rope_type" : "type";
  const kind = scaling.string(key, { fallback: "default" });
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
        throw scaling.error("high_freq_factor", `greater than low_freq_factor (${lowFrequencyFactor})`);
      return {
        ...settings,
        kind,
        factor: scaling.positive("factor"),
        lowFrequencyFactor,
        highFrequencyFactor,
        originalContextLength: scaling.integer("original_max_position_embeddings"),
      };
    }
    default:
      throw scaling.error(key, `one of "default", "linear", "dynamic", "llama3"`);
  }
}

/** Angle per position of each channel pair: E/2 numbers, radians per token. */
export function inverseFrequencies(settings: RotarySettings, headDimension: number): number[] {
  const { theta, kind, factor, lowFrequencyFactor, highFrequencyFactor, originalContextLength } = settings;
  return Array.from({ length: headDimension / 2 }, (_, pair) => {
    const frequency = theta ** ((-2 * pair) / headDimension);
    if (kind === "linear") return frequency / factor;
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

/** Cosines and sines for positions from 0, each float32 [rows, E/2]. The caller owns them. */
export function rotaryTables(
  settings: RotarySettings,
  options: { headDimension: number; rows: number; device: Device },
): { cosine: Tensor; sine: Tensor } {
  const { headDimension, rows, device } = options;
  const frequencies = tensor(inverseFrequencies(settings, headDimension), { device });
  const positions = arange(0, rows, 1, { dtype: "float32", device });
  const angles = positions.unsqueeze(1).mul(frequencies.unsqueeze(0)); // [rows, E/2]
  return { cosine: angles.cos(), sine: angles.sin() };
}
