import { LEAST_TEMPERATURE, REPETITION_PENALTY_RANGE, resolveSampling } from "@astra-rl/lm";
import { DEFAULT_SAMPLING } from "@astra-rl/method";
import { z } from "zod";

const whole = (least: number) => z.number().int().min(least);

// The Python toolbox's settings, otherwise the generation defaults.
const speech = resolveSampling(DEFAULT_SAMPLING);

export const generationSchema = z
  .strictObject({
    maxNewTokens: whole(1).default(speech.maxNewTokens).describe("Maximum tokens per message"),
    minNewTokens: whole(0)
      .default(speech.minNewTokens)
      .describe("Minimum tokens per message; the end of sequence is suppressed before"),
    temperature: z
      .number()
      .min(LEAST_TEMPERATURE)
      .default(speech.temperature)
      .describe("Divides the logits; set greedy to always choose the most likely token"),
    topK: whole(0)
      .default(speech.topK)
      .describe("Sample from this number of most likely tokens; 0 disables the limit"),
    topP: z
      .number()
      .positive()
      .max(1)
      .default(speech.topP)
      .describe("Sample from the most likely tokens whose total probability reaches this value"),
    repetitionPenalty: z
      .number()
      .min(REPETITION_PENALTY_RANGE[0])
      .max(REPETITION_PENALTY_RANGE[1])
      .default(speech.repetitionPenalty)
      .describe("Values above 1 make tokens that already occurred less likely"),
    greedy: z.boolean().default(speech.greedy).describe("Always choose the most likely token"),
    stopStrings: z
      .array(z.string().min(1))
      .default([...speech.stopStrings])
      .describe(
        "Texts that end a message. A base model, which has no chat template, may write the lines of both speakers: " +
          '["\\n"] ends its message at the end of the line',
      ),
    keepStopString: z
      .boolean()
      .default(speech.keepStopString)
      .describe("Keep the stop string at the end of the message"),
  })
  .superRefine(({ minNewTokens, maxNewTokens }, context) => {
    if (minNewTokens <= maxNewTokens) return;
    const message = `must be at most maxNewTokens (${maxNewTokens}), got ${minNewTokens}`;
    context.addIssue({ code: "custom", path: ["minNewTokens"], message, params: { rule: "out-of-range" } });
  });
