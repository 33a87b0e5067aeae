import type { HubOptions } from "@astra-rl/lm";
import { z } from "zod";
import { deviceSchema } from "@astra-rl/base";

/** How hub models are fetched; only in code, not in configurations. */
export const hubOption = z
  .custom<HubOptions>(
    (value) => typeof value === "object" && value !== null,
    "must be an object, the options of downloads from the hub",
  )
  .default({});

/** Common options of scorers that are models. */
export const MODEL_OPTIONS = {
  model: z.string().min(1).meta({ path: "model" }).describe("A folder in Hugging Face format, or a hub id"),
  device: deviceSchema.default("cpu").describe("Device of the model"),
  dtype: z
    .enum(["auto", "float32", "bfloat16"])
    .default("auto")
    .describe(
      "Number format. auto: bfloat16 if the processor supports it and the model is large enough to benefit",
    ),
  batchSize: z
    .number()
    .int()
    .min(1)
    .default(16)
    .meta({ resume: "free" })
    .describe("Maximum number of texts per forward pass"),
};
