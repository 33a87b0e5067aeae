import { keyedUniform } from "@astra-rl/lm";
import type { Embedder, NodeKey, RetryOptions, Scorer, Speaker, Tester } from "../core/index.js";
import type { Reward } from "../reward/index.js";
import type { TargetAnswers } from "./combine-answers.js";
import type { Speakers } from "./level.js";
import { SpeakerPool } from "./speaker-pool.js";

/** What a system is made of. A method whose part is missing has to be overridden. */
export interface SystemParts {
  tester?: Tester;
  /** Further testers that speak in some episodes and are never trained; with the tester's ids. */
  otherTesters?: readonly Speaker[];
  target?: Speaker;
  /** Further models under test. */
  otherTargets?: readonly Speaker[];
  /** Frozen reference for the tester, with the tester's ids. */
  baseline?: Speaker;
  /** Says how likely a probe is where the target cannot tell; it never speaks. Default: the target. */
  likelihood?: Speaker;
  scorer?: Scorer;
  /** What a turn is worth. Default: the paper's reward over the scorer. */
  reward?: Reward;
  /** Says how alike probes are: what evaluations compare attacks by where they are given nothing else. */
  embedder?: Embedder;
}

export const TARGET_READS = ["conversation", "probe"] as const;
export type TargetReads = (typeof TARGET_READS)[number];

export interface ASTSystemOptions {
  /** How failing scorer and target calls are repeated. Default: 3 tries, no wait. */
  retry?: RetryOptions;
  /**
   * What happens where there are several targets. "one": each episode has one of them, by a keyed draw. Otherwise each
   * episode's conversation is with one of them, the others answer its probes as well, and a turn is worth the maximum,
   * mean or minimum over all answers. Default "one".
   */
  targetAnswers?: TargetAnswers;
  /**
   * What the target reads before it responds: the whole conversation, or the probe alone, where what stands before it is
   * the tester's affair (a list of test cases that it goes on with). Default "conversation".
   */
  targetReads?: TargetReads;
  /** Share of the training episodes in which one of the other testers speaks, by a keyed draw. Default 0.5. */
  otherTesterShare?: number;
  /** Whether evaluations have the other testers speak as well, each as often as the tester. Default false. */
  evaluateOtherTesters?: boolean;
}

/** The speakers of the roles; where there are several for one, each episode's is drawn by its key. */
export function speakersOf(
  { tester, otherTesters = [], target, otherTargets = [], baseline }: SystemParts,
  {
    targetAnswers,
    otherTesterShare,
    evaluateOtherTesters,
  }: Required<Omit<ASTSystemOptions, "retry" | "targetReads">>,
): Speakers {
  const draw = (stream: string, { seed, episode }: NodeKey, index: number) =>
    keyedUniform({ seed, stream, episode, node: 0 }, index);
  const oneOf = (count: number, stream: string, key: NodeKey, index: number) =>
    Math.floor(draw(stream, key, index) * count);
  const testers =
    tester === undefined || otherTesters.length === 0
      ? tester
      : new SpeakerPool([tester, ...otherTesters], {
          choose: (key) => {
            const stream = "choice of tester";
            if (key.purpose === "evaluate") {
              return evaluateOtherTesters ? oneOf(otherTesters.length + 1, stream, key, 0) : 0;
            }
            const isOther = draw(stream, key, 0) < otherTesterShare;
            return isOther ? 1 + oneOf(otherTesters.length, stream, key, 1) : 0;
          },
        });
  const targets =
    target === undefined || otherTargets.length === 0
      ? target
      : new SpeakerPool([target, ...otherTargets], {
          choose: (key) => oneOf(otherTargets.length + 1, "choice of target", key, 0),
          everyone: targetAnswers !== "one",
        });
  return {
    ...(testers === undefined ? {} : { tester: testers }),
    ...(targets === undefined ? {} : { target: targets }),
    ...(baseline === undefined ? {} : { baseline }),
  };
}
