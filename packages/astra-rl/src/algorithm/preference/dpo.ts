import { defineKind } from "../../kinds/index.js";
import type { System, Message, Conversation } from "../../core/index.js";
import { parseOptions } from "../../options/index.js";
import { siblingsMissing } from "../requirements.js";
import { dpoLoss, type DPOLossOptions } from "./dpo-loss.js";
import { preferenceOptions } from "./preference-options.js";
import type { PairOptions } from "./preference-pairs.js";
import { Preference } from "./preference.js";

export interface DPOOptions extends DPOLossOptions, PairOptions {
  /** How often the pairs of an experience are passed over. @default 1 */
  epochs?: number;
}

/**
 * Direct preference optimisation on sibling pairs (see `Preference` for the pairs and `dpoLoss` for the loss).
 *
 * @example new DPO(system, { beta: 0.1 })
 */
export class DPO<S = Conversation, A = Message> extends Preference<S, A> {
  constructor(system: System<S, A>, options: DPOOptions = {}) {
    super(system, "DPO", dpoLoss, parseOptions("DPO", preferenceOptions, options) as DPOOptions);
  }
}

export const dpoKind = defineKind({
  role: "algorithm",
  name: "dpo",
  summary: "Direct preference optimisation",
  schema: preferenceOptions,
  check: (_, beside) => siblingsMissing("DPO", beside),
  needs: ["baseline"],
  make: (options, { system }) => new DPO(system, options),
});
