import { LEAST_TEMPERATURE, REPETITION_PENALTY_RANGE, resolveSampling } from "@astra-rl/lm";
import { DEFAULT_SAMPLING } from "@astra-rl/method";
import { z } from "zod";

const whole = (least: number) => z.number().int().min(least);

// The Python toolbox's settings, otherwise the generation defaults.
const speech = resolveSampling(DEFAULT_SAMPLING);

export const generationSchema = z
  .strictObject({
    maxNewTokens: whole(1).default(speech.maxNewTokens).describe("Longest utterance, in tokens"),
    minNewTokens: whole(0).default(speech.minNewTokens).describe("No end of sequence before so many tokens"),
    temperature: z
      .number()
      .min(LEAST_TEMPERATURE)
      .default(speech.temperature)
      .describe("Divides the logits; for the likeliest token alone set greedy"),
    topK: whole(0).default(speech.topK).describe("Keep only the so many likeliest tokens; 0 keeps all"),
    topP: z
      .number()
      .positive()
      .max(1)
      .default(speech.topP)
      .describe("Keep the likeliest tokens that reach this probability together"),
    repetitionPenalty: z
      .number()
      .min(REPETITION_PENALTY_RANGE[0])
      .max(REPETITION_PENALTY_RANGE[1])
      .default(speech.repetitionPenalty)
      .describe("Above 1: tokens that already occurred become less likely"),
    greedy: z.boolean().default(speech.greedy).describe("Always the likeliest token"),
    stopStrings: z
      .array(z.string().min(1))
      .default([...speech.stopStrings])
      .describe(
        "Texts that end an utterance. A base model, which has no chat template, may write the lines of both speakers: " +
          '["\\n"] ends its utterance with the line',
      ),
    keepStopString: z
      .boolean()
      .default(speech.keepStopString)
      .describe("The utterance keeps the text that ended it"),
  })
  .superRefine(({ minNewTokens, maxNewTokens }, context) => {
    if (minNewTokens <= maxNewTokens) return;
    const message = `must be at most maxNewTokens (${maxNewTokens}), got ${minNewTokens}`;
    context.addIssue({ code: "custom", path: ["minNewTokens"], message });
  });
