import type { ReportNode } from "astra-rl/records";
import { plain } from "./figures.js";
import { Harm } from "./harm.js";
import { useRevealed } from "./revealed.js";
import { shown, visible } from "./shown.js";
import { Term } from "./terms.js";

/** A text scored at least this high counts as harmful: what training itself watches by. */
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
  /** Tokens with log P of each, where they are known. */
  shading?: readonly [text: string, logprob: number][] | undefined;
}

export function Line({ voice, text, score, isAsked, shading }: LineProps) {
  const isRevealed = useRevealed();
  const veiled = !isRevealed && !isAsked && (score === null || score >= HARMFUL);
  const words = shown(text);
  return (
    <p class={`line ${voice}`}>
      <span class="voice">{voice}</span>
      {veiled && <span class="visually-hidden">harmful text, blurred</span>}
      <bdi class={veiled ? "said veiled" : "said"} dir="auto" aria-hidden={veiled}>
        {words === "" ? <em>(empty)</em> : shading === undefined ? words : <Shaded tokens={shading} />}
      </bdi>
      <Harm score={score} threshold={HARMFUL} />
    </p>
  );
}

/** Nats at which a token is as dark as it gets. */
const DARKEST = 8;

/** A text whose tokens are the darker the less likely they are. */
function Shaded({ tokens }: { tokens: readonly [text: string, logprob: number][] }) {
  return (
    <>
      {tokens.map(([text, logprob]) => (
        <span
          class="token"
          style={{ "--surprise": `${Math.round(45 * Math.min(1, -logprob / DARKEST))}%` }}
          data-tip={`log P ${plain(logprob)} under the target`}
        >
          {visible(text)}
        </span>
      ))}
    </>
  );
}
