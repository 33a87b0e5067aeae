import type { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { System } from "../../system/index.js";
import { elicitationDefaults } from "../elicitation-defaults.js";
import { siblingsMissing } from "../requirements.js";
import { dpoLoss } from "../losses/index.js";
import { HARM_MARGIN, preferenceOptions } from "./preference-options.js";
import { Preference } from "./preference.js";

export type DPOOptions = z.input<typeof preferenceOptions>;

/**
 * Direct preference optimization on sibling pairs (see `Preference` for the pairs and `dpoLoss` for the loss).
 *
 * @example new DPO(system, { beta: 0.1 })
 */
export class DPO<S = Conversation, A = Message> extends Preference<S, A> {
  constructor(system: System<S, A>, options: DPOOptions = {}) {
    super(system, "DPO", dpoLoss, parseOptions("DPO", preferenceOptions, options));
  }
}

export const dpoKind = defineKind({
  role: "algorithm",
  name: "dpo",
  summary: "Direct preference optimization",
  ...elicitationDefaults(preferenceOptions, { pairs: "all", pairMargin: HARM_MARGIN, epochs: 2 }),
  growsWideTrees: true,
  check: (_, beside) => siblingsMissing("DPO", beside),
  needs: ["baseline"],
  make: (options, { system }) => new DPO(system, options),
});
