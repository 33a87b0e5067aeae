import { UsageError, type Json } from "@astra-rl/base";

/** K_β of Ziegler et al. */
const GAIN = 0.1;
/** Clipping bound of the proportional error. */
const LARGEST_ERROR = 0.2;

/**
 * The coefficient β of a KL penalty: fixed, or adapted after each experience so that the KL per probe approaches a
 * target:
 *
 * e = clip(KL / target − 1, ±0.2) and β ← β·(1 + 0.1·e)
 *
 * Ziegler et al., "Fine-Tuning Language Models from Human Preferences", arXiv 1909.08593, section 2.2. The paper
 * updates β after every batch; here a batch is an experience.
 */
export class KLController {
  #coefficient: number;

  /**
   * @param coefficient initial β
   * @param target KL per probe in nats, summed over its tokens; null keeps β fixed
   */
  constructor(
    coefficient: number,
    readonly target: number | null,
  ) {
    this.#coefficient = coefficient;
  }

  get coefficient(): number {
    return this.#coefficient;
  }

  /** @param divergence KL to the baseline in nats, averaged over the experience's probes */
  update(divergence: number): void {
    if (this.target === null) return;
    const error = Math.min(LARGEST_ERROR, Math.max(-LARGEST_ERROR, divergence / this.target - 1));
    this.#coefficient *= 1 + GAIN * error;
  }

  /** null for a fixed coefficient, which is an option, not state. */
  getState(): Json {
    return this.target === null ? null : this.#coefficient;
  }

  /** @throws UsageError for the state of another controller */
  setState(state: Json): void {
    if (state === null && this.target === null) return;
    if (this.target === null || typeof state !== "number" || !(state >= 0)) {
      throw new UsageError(
        this.target === null ? "no-state" : "invalid-state",
        `KLController.setState: ${this.target === null ? "the coefficient is fixed" : "needs a coefficient"}, got ` +
          JSON.stringify(state),
      );
    }
    this.#coefficient = state;
  }
}
