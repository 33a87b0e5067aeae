import { matches } from "./found.js";
import { useRevealed } from "./revealed.js";
import { shown, visible } from "./shown.js";
import { plain } from "./figures.js";

/** Nats at which a token has maximum darkness. */
const DARKEST = 8;

/** Whether a text is harmful, or of unknown harm. */
export const mayBeHarmful = (score: number | null, threshold: number) => score === null || score >= threshold;

/**
 * A model's text: as plain text, in its own direction. It is blurred unless the page's texts are shown.
 *
 * @param props.veiled whether it is to be blurred
 * @param props.query marked where it occurs
 * @param props.shading tokens with log P of each: darker if less likely
 */
export function Said({
  text,
  veiled = false,
  query = "",
  shading,
}: {
  text: unknown;
  veiled?: boolean;
  query?: string;
  shading?: readonly [text: string, logprob: number][] | undefined;
}) {
  const isRevealed = useRevealed();
  const isVeiled = veiled && !isRevealed;
  const words = shown(text);
  return (
    <>
      {isVeiled && <span class="visually-hidden">harmful text, blurred</span>}
      <bdi class={isVeiled ? "said veiled" : "said"} dir="auto" aria-hidden={isVeiled}>
        {words === "" ? (
          <em>(empty)</em>
        ) : shading === undefined ? (
          matches(words, query).map((piece, at) => (at % 2 === 1 ? <mark>{piece}</mark> : piece))
        ) : (
          shading.map(([token, logprob]) => (
            <span
              class="token"
              style={{ "--surprise": `${Math.round(45 * Math.min(1, -logprob / DARKEST))}%` }}
              data-tip={`log P ${plain(logprob)} under the target`}
            >
              {visible(token)}
            </span>
          ))
        )}
      </bdi>
    </>
  );
}

/** The messages of a prompt before its last, each with its speaker. */
export function EarlierMessages({
  messages,
  query = "",
}: {
  messages: readonly (readonly [from: string, text: string])[];
  query?: string;
}) {
  return (
    <>
      {messages.map(([from, text]) => (
        <p class={`line ${from}`}>
          <span class="voice">{from}</span>
          <Said text={text} query={query} />
        </p>
      ))}
    </>
  );
}
