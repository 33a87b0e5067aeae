import type { Device, DType, EngineInformation } from "@astra-rl/torch";

/** Compute dtypes of a run; a resumed run must use the same. */
export interface ComputeTypes {
  /** Dtype of rollouts and frozen models. */
  rollouts: DType;
  /** Dtype of the trained model's matrix products in updates; its master weights are always float32. */
  updates: DType;
}

export interface ComputeTypesChoice extends ComputeTypes {
  /** Explanation in one sentence. */
  reason: string;
}

// For smaller models the casts around each product cost more than bfloat16 saves.
const BFLOAT16_BYTES = 2 ** 25;
/** On a GPU, where calls and casts take the time of smaller models (docs/performance.md: 124 million parameters, an H200). */
const DEVICE_BFLOAT16_BYTES = 2 ** 29;

/**
 * Resolves "auto". This is a table instead of a benchmark, since temporary load on a machine must not change a run's
 * results.
 *
 * Rollouts are memory-bound: each token reads all weights, so half-size weights pay off where AVX-512 widens them on
 * load. Updates are compute-bound: they use bfloat16 where the processor multiplies bfloat16 tiles or pairs faster than
 * float32; elsewhere it would only add casts and rounding.
 *
 * @param weightBytes size of the largest model
 */
export function fastestTypes(
  { isa, bf16 }: Pick<EngineInformation, "isa" | "bf16">,
  device: Device,
  weightBytes: number,
): ComputeTypesChoice {
  if (weightBytes < BFLOAT16_BYTES) {
    return both("float32", `models below ${BFLOAT16_BYTES / 2 ** 20} MiB gain nothing from bfloat16`);
  }
  if (device !== "cpu") {
    return weightBytes < DEVICE_BFLOAT16_BYTES
      ? both(
          "float32",
          `on a device, models below ${DEVICE_BFLOAT16_BYTES / 2 ** 20} MiB gain nothing from bfloat16`,
        )
      : both("bfloat16", "a device multiplies it faster");
  }
  if (isa === "amx") return both("bfloat16", "tiles (AMX) multiply it many times as fast as float32");
  if (isa === "avx512_bf16")
    return both("bfloat16", "the processor multiplies pairs of it faster than float32");
  if (isa === "avx512") {
    return {
      rollouts: "bfloat16",
      updates: "float32",
      reason: "weights of half the size are read faster, but products of float32 are faster in updates",
    };
  }
  const reason = bf16 ? "has not been measured on this processor" : `is not faster within ${isa}`;
  return both("float32", `bfloat16 ${reason}`);
}

const both = (dtype: DType, reason: string): ComputeTypesChoice => ({
  rollouts: dtype,
  updates: dtype,
  reason,
});
