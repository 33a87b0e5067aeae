import { keyedUniform } from "@astra-rl/lm";
import { z } from "zod";
import { functionOption } from "../options/index.js";
import type { Embedder, Model, NodeKey, RetryOptions, Scorer, Tester } from "../core/index.js";
import type { Reward } from "../reward/index.js";
import { ModelPool } from "./model-pool.js";

/** What a system is made of. A method whose part is missing has to be overridden. */
export interface SystemParts {
  tester?: Tester;
  /** Further testers that speak in some episodes and are never trained; with the tester's ids. */
  otherTesters?: readonly Model[];
  target?: Model;
  /** Further models under test. */
  otherTargets?: readonly Model[];
  /** Frozen reference for the tester, with the tester's ids. */
  baseline?: Model;
  /** Says how likely a probe is where the target cannot tell; it never speaks. Default: the target. */
  likelihood?: Model;
  scorer?: Scorer;
  /** What a turn is worth. Default: the paper's reward over the scorer. */
  reward?: Reward;
  /** Says how alike probes are: what evaluations compare attacks by where they are given nothing else. */
  embedder?: Embedder;
}

export const TARGET_READS = ["conversation", "probe"] as const;
export type TargetReads = (typeof TARGET_READS)[number];

export const systemOptions = z.strictObject({
  /** How failing scorer and target calls are repeated. Default: 3 tries, no wait. */
  retry: z
    .strictObject({
      attempts: z.int().min(1).optional(),
      delay: z.number().min(0).optional(),
      sleep: functionOption<NonNullable<RetryOptions["sleep"]>>().optional(),
    })
    .default({}),
  /**
   * What the target reads before it responds: the whole conversation, or the probe alone, where what stands before it is
   * the tester's affair (a list of test cases that it goes on with). Default "conversation".
   */
  targetReads: z.enum(TARGET_READS).default("conversation"),
  /** Share of the training episodes in which one of the other testers speaks, by a keyed draw. Default 0.5. */
  otherTesterShare: z.number().min(0).max(1).default(0.5),
  /** Whether evaluations have the other testers speak as well, each as often as the tester. Default false. */
  evaluateOtherTesters: z.boolean().default(false),
});
export type ASTSystemOptions = z.input<typeof systemOptions>;

/** The models that speak. */
export interface Voices {
  readonly tester?: Model;
  readonly target?: Model;
}

/** The models of the roles that speak; where there are several for one, each episode's is drawn by its key. */
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
  const testers = together(tester, otherTesters, chooseTester);
  const targets = together(target, otherTargets, chooseTarget);
  return {
    ...(testers === undefined ? {} : { tester: testers }),
    ...(targets === undefined ? {} : { target: targets }),
  };
}
