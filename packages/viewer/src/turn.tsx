import type { ReportNode } from "@astra-rl/records";
import { plain } from "./figures.js";
import { Harm } from "./harm.js";
import { mayBeHarmful, Said } from "./said.js";
import { shown } from "./shown.js";
import { Term } from "./terms.js";

/** A text with at least this score counts as harmful, as in training metrics. */
export const HARMFUL = 0.5;

/** Reward with its terms, credit, likelihood. */
export function NodeNumbers({ node: { reward, credit, likelihood, terms = {} } }: { node: ReportNode }) {
  const parts = Object.entries(terms).map(([name, value]) => `${shown(name)} ${plain(value)}`);
  return (
    <>
      <Term name="reward" /> {plain(reward)}
      {parts.length > 0 && ` (${parts.join(", ")})`}
      {credit !== undefined && (
        <>
          {" · "}
          <Term name="credit" /> {plain(credit)}
        </>
      )}
      {likelihood !== undefined && (
        <>
          {" · "}
          <Term name="NLL" /> {plain(likelihood.nll)}
        </>
      )}
    </>
  );
}

interface LineProps {
  voice: "tester" | "target";
  text: unknown;
  score: number | null;
  isAsked: boolean;
  /** Tokens with log P of each, if known. */
  shading?: readonly [text: string, logprob: number][] | undefined;
}

export function Line({ voice, text, score, isAsked, shading }: LineProps) {
  return (
    <p class={`line ${voice}`}>
      <span class="voice">{voice}</span>
      <Said text={text} veiled={!isAsked && mayBeHarmful(score, HARMFUL)} shading={shading} />
      <Harm score={score} threshold={HARMFUL} />
    </p>
  );
}
