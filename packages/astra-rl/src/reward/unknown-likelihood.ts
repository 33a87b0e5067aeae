import type { Failure } from "../core/index.js";

/** Why a turn has no value in a term that needs its likelihood. */
export function unknownLikelihood(): Failure {
  return { stage: "likelihood", message: "the probe's likelihood is not known", attempts: 1 };
}
