import type { Failure } from "@astra-rl/records";

/** The failure of a turn without likelihood in a term that needs it. */
export function unknownLikelihood(): Failure {
  return { stage: "likelihood", message: "the probe's likelihood is not known", attempts: 1 };
}
