import { keyedUniform, functionOption } from "@astra-rl/base";
import { Conversation } from "@astra-rl/lm";
import { z } from "zod";
import type { Embedder, Model, Tester } from "../models/index.js";
import type { NodeKey, RetryOptions } from "../tree/index.js";
import type { Scorer } from "../scorer/index.js";
import type { Reward } from "../reward/index.js";
import { ModelPool } from "./model-pool.js";

/** Parts of a system. A method whose part is missing must be overridden. */
export interface SystemParts {
  tester?: Tester;
  /** Further testers that generate probes in some episodes and are never trained; with the tester's tokenizer. */
  otherTesters?: readonly Model[];
  target?: Model;
  /** Further models under test. */
  otherTargets?: readonly Model[];
  /** Frozen reference for the tester, with the tester's tokenizer. */
  baseline?: Model;
  /** Provides probe likelihoods where the target cannot; it never generates. Default: the target. */
  likelihood?: Model;
  scorer?: Scorer;
  /** Reward of a turn. Default: the paper's reward over the scorer. */
  reward?: Reward;
  /** Measures similarity of probes: the default by which evaluations compare attacks. */
  embedder?: Embedder;
}

/** The target's context where it reads only the probe. */
export const NOTHING = Conversation.of("");

export const TARGET_READS = ["conversation", "probe"] as const;
export type TargetReads = (typeof TARGET_READS)[number];

export const systemOptions = z.strictObject({
  /** Retry policy of scorer and target calls. Default: 3 attempts, no delay. */
  retry: z
    .strictObject({
      attempts: z.int().min(1).optional(),
      delay: z.number().min(0).optional(),
      sleep: functionOption<NonNullable<RetryOptions["sleep"]>>().optional(),
    })
    .default({}),
  /**
   * The target's input: the whole conversation, or only the probe, if the preceding text is meant for the tester (a
   * list of test cases to continue). Default "conversation".
   */
  targetReads: z.enum(TARGET_READS).default("conversation"),
  /** Share of training episodes that use one of the other testers, by a keyed draw. Default 0.5. */
  otherTesterShare: z.number().min(0).max(1).default(0.5),
  /** Whether evaluations use the other testers, too, each as often as the tester. Default false. */
  evaluateOtherTesters: z.boolean().default(false),
});
export type ASTSystemOptions = z.input<typeof systemOptions>;

/** The models that generate. */
export interface Voices {
  readonly tester?: Model;
  readonly target?: Model;
}

/** The generating models by role; among several for one role, each episode draws one by its key. */
export function voicesOf(
  { tester, otherTesters = [], target, otherTargets = [] }: SystemParts,
  {
    otherTesterShare,
    evaluateOtherTesters,
  }: Pick<z.output<typeof systemOptions>, "otherTesterShare" | "evaluateOtherTesters">,
): Voices {
  const draw = (stream: string, { seed, episode }: NodeKey, index: number) =>
    keyedUniform({ seed, stream, episode, node: 0 }, index);
  const oneOf = (count: number, stream: string, key: NodeKey, index: number) =>
    Math.floor(draw(stream, key, index) * count);
  const chooseTester = (key: NodeKey): number => {
    const stream = "choice of tester";
    if (key.purpose === "evaluate") {
      return evaluateOtherTesters ? oneOf(otherTesters.length + 1, stream, key, 0) : 0;
    }
    const isOther = draw(stream, key, 0) < otherTesterShare;
    return isOther ? 1 + oneOf(otherTesters.length, stream, key, 1) : 0;
  };
  const chooseTarget = (key: NodeKey) => oneOf(otherTargets.length + 1, "choice of target", key, 0);
  const together = (model: Model | undefined, others: readonly Model[], choose: (key: NodeKey) => number) =>
    model === undefined || others.length === 0 ? model : new ModelPool([model, ...others], choose);
  return {
    tester: together(tester, otherTesters, chooseTester),
    target: together(target, otherTargets, chooseTarget),
  };
}
