import type { z } from "zod";
import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { System } from "../../system/index.js";
import { elicitationDefaults } from "../elicitation-defaults.js";
import { siblingsMissing } from "../requirements.js";
import { ipoLoss } from "../losses/index.js";
import { HARM_MARGIN, preferenceOptions } from "./preference-options.js";
import { Preference } from "./preference.js";

export type IPOOptions = z.input<typeof preferenceOptions>;

/**
 * Identity preference optimization on sibling pairs (see `Preference` for the pairs and `ipoLoss` for the loss).
 *
 * @example new IPO(system, { beta: 0.1 })
 */
export class IPO<S = Conversation, A = Message> extends Preference<S, A> {
  constructor(system: System<S, A>, options: IPOOptions = {}) {
    super(system, "IPO", ipoLoss, parseOptions("IPO", preferenceOptions, options));
  }
}

export const ipoKind = defineKind({
  role: "algorithm",
  name: "ipo",
  summary: "Identity preference optimization",
  ...elicitationDefaults(preferenceOptions, { pairMargin: HARM_MARGIN, epochs: 2 }),
  check: (_, beside) => siblingsMissing("IPO", beside),
  needs: ["baseline"],
  make: (options, { system }) => new IPO(system, options),
});
