import { useMemo } from "preact/hooks";
import { harmOf, layout, type Placed } from "./tree.js";

const WIDE = 1000;
const HIGH = 60;

/** The shape of the tree; harm of a response is shown by the fill of its dot as well as its color. */
export function Picture({
  all,
  current,
  best,
  onChoose,
}: {
  all: readonly Placed[];
  current: string;
  best: ReadonlySet<string>;
  onChoose: (path: string) => void;
}) {
  const places = useMemo(() => layout(all), [all]);
  const depth = Math.max(1, ...all.map(({ level }) => level));
  const height = HIGH * depth + 40;
  const at = (path: string | null) => {
    const place = path === null ? { x: 0.5, y: 0 } : places.get(path)!;
    return { x: 20 + place.x * (WIDE - 40), y: 20 + place.y * (height - 40) };
  };
  const radius = all.length > 200 ? 4 : all.length > 60 ? 7 : 12;
  return (
    <svg class="picture" viewBox={`0 0 ${WIDE} ${height}`} aria-hidden="true">
      {all.map(({ path, parent }) => {
        const [from, to] = [at(parent), at(path)];
        const middle = (from.y + to.y) / 2;
        return (
          <path
            class={best.has(path) ? "best" : ""}
            d={`M${from.x},${from.y}C${from.x},${middle} ${to.x},${middle} ${to.x},${to.y}`}
          />
        );
      })}
      <rect x={at(null).x - radius} y={at(null).y - radius} width={2 * radius} height={2 * radius} rx="3" />
      {all.map(({ node, path }) => {
        const { x, y } = at(path);
        const harm = harmOf(node, "response");
        return (
          <g class={path === current ? "dot current" : "dot"} onClick={() => onChoose(path)}>
            <circle cx={x} cy={y} r={radius} class={harm === null ? "unknown" : ""} />
            {harm !== null && (
              <circle cx={x} cy={y} r={radius * Math.sqrt(Math.min(1, Math.max(0, harm)))} class="fill" />
            )}
          </g>
        );
      })}
    </svg>
  );
}
