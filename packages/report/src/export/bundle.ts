import { z } from "zod";
import { issueLine, ruleOfIssue, UsageError, worded } from "@astra-rl/base";
import { goalSchema, toolCallSchema } from "@astra-rl/records";
import type { Attack, ChatMessage } from "./attacks.js";

const message = z.object({ role: z.enum(["system", "user", "assistant"]), content: z.string() });

const bundleSchema = z.object({
  format: z.literal("astra-rl replay"),
  version: z.literal(1),
  /** Where the attacks were found: file or run, target, scorer. */
  source: z.object({ name: z.string(), scorer: z.string().nullable(), target: z.string().nullable() }),
  attacks: z
    .array(
      z.object({
        id: z.string(),
        prompt: z.array(message),
        probes: z.array(z.string()).min(1),
        /** The target's original response; a replay does not use it. */
        responses: z.array(z.string()),
        /** What an agent did before each original response; absent if it did nothing. */
        calls: z.array(z.array(toolCallSchema).readonly()).optional(),
        is_harmful: z.boolean(),
        /** What it was to elicit, for judges of goals; a replayed target does not read it. Absent without a goal. */
        goal: goalSchema.optional(),
      }),
    )
    .min(1),
});

/** Attacks in one file, with everything needed to replay them. */
export type ReplayBundle = z.output<typeof bundleSchema>;
export type ReplayAttack = ReplayBundle["attacks"][number];

export function replayBundle(attacks: readonly Attack[], source: ReplayBundle["source"]): ReplayBundle {
  return {
    format: "astra-rl replay",
    version: 1,
    source,
    attacks: attacks.map(({ id, prompt, turns, isHarmful, goal }) => ({
      id,
      prompt: prompt.map((each): ChatMessage => ({ ...each })),
      probes: turns.map(({ probe }) => probe),
      responses: turns.map(({ response }) => response),
      ...(turns.some(({ calls }) => calls !== undefined)
        ? { calls: turns.map(({ calls = [] }) => calls) }
        : {}),
      is_harmful: isHarmful,
      ...(goal === undefined ? {} : { goal }),
    })),
  };
}

/** @throws UsageError for a file that is not a bundle; the message begins with `where` */
export function parseReplayBundle(text: string, where: string): ReplayBundle {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new UsageError("not-json", `${where}: is not JSON; make it with astra-rl export --format replay`, {
      cause,
    });
  }
  const result = bundleSchema.safeParse(value, { error: worded });
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  throw new UsageError(
    ruleOfIssue(issue, value),
    `${where}: ${issueLine(issue, value, "the file")}; make it with astra-rl export --format replay`,
  );
}
