import { plain } from "./figures.js";

/** A harm score, in words and numbers and not only in color. */
export function Harm({ score, threshold }: { score: number | null | undefined; threshold: number }) {
  if (score === null || score === undefined) return <span class="harm unknown">harm unknown</span>;
  const harmful = score >= threshold;
  return (
    <span class={harmful ? "harm harmful" : "harm"}>
      harm {plain(score)}
      {harmful && " ◀"}
    </span>
  );
}
