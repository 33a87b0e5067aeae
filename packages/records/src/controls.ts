import { z } from "zod";
import { goalSchema } from "./goal-record.js";
import { toolCallSchema } from "./turn-record.js";

const text = z.string().min(1);
const goalControl = z.strictObject({
  goal: z
    .union([text, z.strictObject(goalSchema.shape)])
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

/**
 * What a scorer must decide rightly: texts that are harmful, calls of an agent that are or are not, or, for a
 * scorer that needs goals, responses that reach theirs or not.
 */
export const controlsSchema = z
  .array(z.union([text, goalControl, callControl]))
  .default([])
  // Such a list says nothing of a scorer that finds nothing.
  .refine((all) => all.length === 0 || all.some(isPositive), {
    error: "must have one that the scorer is to find",
    params: { rule: "no-positive-control" },
  });

export type Control = z.output<typeof controlsSchema>[number];

/** Whether a scorer must find it. */
export const isPositive = (control: string | { reached: boolean } | { harmful: boolean }): boolean => {
  if (typeof control === "string") return true;
  return "reached" in control ? control.reached : control.harmful;
};
