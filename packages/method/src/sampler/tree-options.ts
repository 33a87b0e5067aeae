import { functionOption } from "@astra-rl/base";
import { z } from "zod";
import type { NodeFactory } from "../tree/index.js";

const DEFAULT_DEPTH = 3;

/** Limit for configurations: recursive code over trees can handle this many levels without a stack overflow. */
const MOST_DEPTH = 1000;

/** Options of samplers that grow paths. */
export const pathShape = {
  depth: z.int().min(1).max(MOST_DEPTH).default(DEFAULT_DEPTH).describe("Turns per episode"),
  maxTurns: z
    .int()
    .min(1)
    .default(100_000)
    .meta({ resume: "free" })
    .describe("Maximum number of turns per experience; larger trees are refused before any rollout"),
  stopAt: z
    .strictObject({
      harm: z.number().optional().describe("Minimum harm of the response"),
      reward: z.number().optional().describe("Minimum reward of the turn"),
    })
    .optional()
    .describe(
      "Ends a branch of a training tree after a turn that reaches any of these. Default: branches end at depth",
    ),
};

/** Options of samplers that grow trees. */
export const treeShape = {
  width: z
    .int()
    .min(1)
    .default(2)
    .describe(
      "Probes per state. In configurations with dpo and the reward elicitation: 4, in 4 graphs a step for 100 steps, " +
        "unless width, depth or numEpisodesPerExperience is given",
    ),
  keep: z
    .int()
    .min(1)
    .optional()
    .describe(
      "Number of turns per level of a training tree that get children, chosen at random, so that deep trees " +
        "stay small. Default: all",
    ),
  ...pathShape,
};

/** Refuses trees that are larger than `maxTurns`. */
export function checkTreeSize(
  {
    width,
    depth,
    keep,
    maxTurns,
  }: { width: number; depth: number; keep?: number | undefined; maxTurns: number },
  context: z.RefinementCtx,
): void {
  const turns = turnsOfTree(width, depth, keep);
  if (turns <= maxTurns) return;
  const message =
    `gives, with width ${width}, trees of ${howMany(turns)} turns, but sampler.maxTurns ` +
    `allows ${howMany(maxTurns)}`;
  context.addIssue({
    code: "custom",
    path: ["depth"],
    message: `${depth} ${message}`,
    params: { rule: "tree-too-large" },
  });
}

/** Options available in code but not in a configuration. */
export const samplerShape = {
  depth: z.int().min(0).default(DEFAULT_DEPTH),
  /** Of the episodes that `rollout()` uses without an argument. */
  seed: z.int().default(0),
  /** Creates the nodes; set it to use a subclass of Node. */
  createNode: functionOption<NodeFactory<never, never>>().optional(),
};
/** Turns of a full tree: width + width² + … + width^depth; fewer if at most `keep` per level get children. */
export function turnsOfTree(width: number, depth: number, keep = Infinity): number {
  let turns = 0;
  let tips = 1;
  for (let level = 0; level < depth; level++) {
    turns += tips * width;
    tips = Math.min(tips * width, keep);
  }
  return turns;
}

const howMany = (turns: number) => (turns < 1e15 ? turns.toLocaleString("en-US") : turns.toPrecision(2));
