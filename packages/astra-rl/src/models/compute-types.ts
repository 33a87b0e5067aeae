import type { Device, DType, EngineInformation } from "@astra-rl/torch";

/** Types that a run computes in; which ones it was is part of what a resumed run must keep. */
export interface ComputeTypes {
  /** Of rollouts and frozen models. */
  rollouts: DType;
  /** Of the trained model's products in updates; its master weights are float32 either way. */
  updates: DType;
}

export interface ComputeTypesChoice extends ComputeTypes {
  /** One sentence. */
  reason: string;
}

// Below this the casts around each product cost more than the product gains, and rounding buys nothing.
const BFLOAT16_BYTES = 2 ** 25;

/**
 * What "auto" stands for. A table and no measurement: a machine that is busy for a moment must not change what a run
 * computes.
 *
 * Rollouts read all weights for each token, so that weights of half the size are worth having where AVX-512 widens them
 * on the way. In updates products are the bound: where the processor multiplies bfloat16 tiles or pairs faster than float32,
 * they are in bfloat16, elsewhere casts and rounding would be paid for nothing.
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
  if (device !== "cpu") return both("bfloat16", `a device multiplies it faster`);
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
