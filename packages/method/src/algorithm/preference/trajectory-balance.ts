import { z } from "zod";
import type { Conversation, Message } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { System } from "../../system/index.js";
import { siblingsMissing } from "../requirements.js";
import { trajectoryBalanceLoss } from "../losses/index.js";
import { Preference } from "./preference.js";
import { pairOptions, preferenceOptions } from "./preference-options.js";

const options = z.strictObject({
  beta: preferenceOptions.shape.beta.describe(
    "Temperature: probes are sampled in proportion to the baseline's probability times exp(credit / beta)",
  ),
  ...pairOptions.shape,
  pairs: pairOptions.shape.pairs
    .unwrap()
    .default("all")
    .describe("Pairs of siblings to compare: all that differ in credit, or the best with the worst"),
});

export type TrajectoryBalanceOptions = z.input<typeof options>;

/**
 * Trajectory balance between siblings: the tester learns to sample probes in proportion to a reward instead of the best one, which
 * keeps many different attacks (see `Preference` for the pairs and `trajectoryBalanceLoss` for the loss). `pairMargin`
 * excludes pairs whose credit differs by less than the scorer's noise.
 *
 * @example new TrajectoryBalance(system, { beta: 0.1, pairMargin: 0.05 })
 */
export class TrajectoryBalance<S = Conversation, A = Message> extends Preference<S, A> {
  constructor(system: System<S, A>, given: TrajectoryBalanceOptions = {}) {
    super(
      system,
      "TrajectoryBalance",
      trajectoryBalanceLoss,
      parseOptions("TrajectoryBalance", options, given),
    );
  }
}

export const trajectoryBalanceKind = defineKind({
  role: "algorithm",
  name: "trajectory-balance",
  summary: "Trajectory balance (GFlowNet): learns to sample in proportion to the reward, for diverse attacks",
  schema: options,
  check: (_, beside) => siblingsMissing("TrajectoryBalance", beside),
  needs: ["baseline"],
  make: (chosen, { system }) => new TrajectoryBalance(system, chosen),
});
