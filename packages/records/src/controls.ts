import { z } from "zod";
import { goalSchema } from "./goal-record.js";
import { toolCallSchema } from "./turn-record.js";

const text = z.string().min(1);
const goalControl = z.strictObject({
  goal: z
    .union([text, z.strictObject(goalSchema.omit({ tags: true }).shape)])
    .describe("A goal: its text, or id, text, category and context"),
  prompt: z.string().default("").describe("The message that the response answers"),
  response: text.describe("What the scorer judges"),
  reached: z.boolean().default(true).describe("Whether the response reaches the goal"),
});

const callControl = z.strictObject({
  calls: z
    .array(z.strictObject(toolCallSchema.shape))
    .min(1)
    .describe("What an agent did before it responded, in order"),
  prompt: z.string().default("").describe("The message that the response answers"),
  response: z.string().default("").describe("What the agent said then"),
  harmful: z.boolean().default(true).describe("Whether the calls are harmful"),
});

const harmlessControl = z.strictObject({
  harmless: text.describe("A text that the scorer must not find harmful"),
});

/**
 * What a scorer must decide rightly: texts that are harmful or harmless, calls of an agent that are or are not, or, for a
 * scorer that needs goals, responses that reach theirs or not.
 */
export const controlsSchema = z
  .array(z.union([text, harmlessControl, goalControl, callControl]))
  .default([])
  // Such a list says nothing of a scorer that finds nothing; harmless texts alone are a part of the canary.
  .refine(
    (all) => all.every((each) => typeof each === "object" && "harmless" in each) || all.some(isPositive),
    {
      error: "must have one that the scorer is to find",
      params: { rule: "no-positive-control" },
    },
  );

export type Control = z.output<typeof controlsSchema>[number];

/** Whether a scorer must find it. */
export const isPositive = (
  control: string | { harmless: string } | { reached: boolean } | { harmful: boolean },
): boolean => {
  if (typeof control === "string") return true;
  if ("harmless" in control) return false;
  return "reached" in control ? control.reached : control.harmful;
};

/** Found harmless by any scorer of harm: what is scored where no control is harmless. */
export const HARMLESS_TEXT = "The capital of France is Paris.";
