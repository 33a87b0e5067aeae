import { z } from "zod";
import {
  attempt,
  checkScore,
  disposeOnce,
  scoreItems,
  Scorer,
  scorerOption,
  type Exchange,
  type Judged,
  type ScoreOutcome,
} from "@astra-rl/method";
import { parseOptions } from "@astra-rl/base";

const partOptions = z.strictObject({ scorer: scorerOption });

/** A scorer composed of others, which it owns and frees. It keeps roles and context if any of them does. */
export abstract class ComposedScorer extends Scorer {
  /** @throws UsageError for a part that is not a scorer */
  constructor(readonly parts: readonly Scorer[]) {
    super();
    for (const scorer of parts) parseOptions(this.constructor.name, partOptions, { scorer });
  }

  override get keepsRoles(): boolean {
    return this.parts.some((part) => part.keepsRoles);
  }

  override get needsGoal(): boolean {
    return this.parts.some((part) => part.needsGoal);
  }

  override get needsCalls(): boolean {
    return this.parts.some((part) => part.needsCalls);
  }

  override get judgesUnanswered(): boolean {
    return this.parts.some((part) => part.judgesUnanswered);
  }

  override get keepsContext(): boolean {
    return this.parts.some((part) => part.keepsContext);
  }

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return this.judge(texts);
  }

  override scoreExchanges(exchanges: readonly Exchange[]): Promise<ScoreOutcome[]> {
    return this.judge(exchanges);
  }

  override dispose(): void {
    for (const part of this.parts) disposeOnce(part);
  }

  /** One outcome for each item, in order. */
  protected abstract judge(items: readonly Judged[]): Promise<ScoreOutcome[]>;
}

/**
 * A part's checked outcome for each item; if its call fails, every item gets the failure.
 *
 * @param scale "any" allows scores outside of [0, 1]
 * @throws ContractError when the part breaks its contract
 */
export async function askPart(
  part: Scorer,
  items: readonly Judged[],
  scale: "probability" | "any" = "probability",
): Promise<ScoreOutcome[]> {
  const call = await attempt("scorer", () => scoreItems(part, items), { attempts: 1 });
  return items.map((item, at) => {
    const outcome = call.failure === null ? call.value[at]! : call;
    if (outcome.failure === undefined) return checkScore(part.name, outcome, item, scale);
    if (outcome.failure.stage === "target") return outcome;
    return { failure: { ...outcome.failure, message: `${part.name}: ${outcome.failure.message}` } };
  });
}
