import { useId, useMemo, useRef, useState } from "preact/hooks";
import type { ReportGraph, ReportNode, ReportRun } from "astra-rl/records";
import { plain, whole } from "./figures.js";
import { Harm } from "./harm.js";
import { shown } from "./shown.js";
import { harmOf, layout, openNodes, placedNodes, worstResponse, type Placed } from "./tree.js";

/** A text scored at least this high counts as harmful: what training itself watches by. */
const HARMFUL = 0.5;

/** The trees that a run learned from, one at a time. */
export function Trees({ run: { graphs, graphs_total }, title }: { run: ReportRun; title: string }) {
  const id = useId();
  const [chosen, setChosen] = useState(graphs.length - 1);
  const graph = graphs[chosen]!;
  const steps = useMemo(() => [...new Set(graphs.map(({ step }) => step ?? 0))], [graphs]);
  const names = useMemo(() => graphs.map(nameOf), [graphs]);
  const ofStep = graphs.flatMap((other, index) => ((other.step ?? 0) === (graph.step ?? 0) ? [index] : []));
  return (
    <section aria-labelledby={`${id}-title`}>
      <h2 id={`${id}-title`}>{title}</h2>
      <p class="note">
        {graphs.length === graphs_total
          ? `${whole(graphs_total)} trees, as they were learned from.`
          : `${whole(graphs.length)} of the ${whole(graphs_total)} trees that were learned from, evenly spread.`}{" "}
        In the tree: arrow keys move, Enter shows or blurs a harmful text.
      </p>
      <div class="controls">
        <label>
          Step
          <select
            value={String(graph.step ?? 0)}
            onChange={(event) =>
              setChosen(graphs.findIndex(({ step }) => (step ?? 0) === Number(event.currentTarget.value)))
            }
          >
            {steps.map((step) => (
              <option value={String(step)}>{step === 0 ? "not known" : whole(step)}</option>
            ))}
          </select>
        </label>
        <label class="wide">
          Tree
          <select value={String(chosen)} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
            {ofStep.map((index) => (
              <option value={String(index)}>{names[index]}</option>
            ))}
          </select>
        </label>
        <span class="buttons">
          <button type="button" disabled={chosen === 0} onClick={() => setChosen(chosen - 1)}>
            Previous
          </button>
          <button type="button" disabled={chosen === graphs.length - 1} onClick={() => setChosen(chosen + 1)}>
            Next
          </button>
        </span>
      </div>
      <Tree key={chosen} graph={graph} />
    </section>
  );
}

function nameOf(graph: ReportGraph): string {
  const worst = worstResponse(graph);
  const prompt = shown(graph.context);
  const text = prompt.length > 60 ? `${prompt.slice(0, 59)}…` : prompt;
  return `${worst !== null && worst >= HARMFUL ? "◀ " : ""}${text}`;
}

/** One tree, as a picture and as a list that keys move in. */
function Tree({ graph }: { graph: ReportGraph }) {
  const all = useMemo(() => placedNodes(graph), [graph]);
  const [current, setCurrent] = useState(all[0]?.path ?? "");
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const [asked, setAsked] = useState<ReadonlySet<string>>(new Set());
  const list = useRef<HTMLDivElement>(null);
  const seen = openNodes(all, closed);

  const go = (path: string | undefined | null) => {
    if (path === undefined || path === null) return;
    setCurrent(path);
    list.current?.querySelector<HTMLElement>(`[data-path="${path}"]`)?.focus();
  };
  const flip = (set: ReadonlySet<string>, path: string) => {
    const copy = new Set(set);
    if (!copy.delete(path)) copy.add(path);
    return copy;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const at = seen.findIndex(({ path }) => path === current);
    const here = seen[at];
    if (here === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const hasChildren = here.node.children.length > 0;
    const isClosed = closed.has(here.path);
    const moves: Record<string, () => void> = {
      ArrowDown: () => go(seen[at + 1]?.path),
      ArrowUp: () => go(seen[at - 1]?.path),
      Home: () => go(seen[0]?.path),
      End: () => go(seen.at(-1)?.path),
      ArrowRight: () =>
        hasChildren && isClosed ? setClosed(flip(closed, here.path)) : hasChildren && go(seen[at + 1]?.path),
      ArrowLeft: () => (hasChildren && !isClosed ? setClosed(flip(closed, here.path)) : go(here.parent)),
      Enter: () => setAsked(flip(asked, here.path)),
      " ": () => setAsked(flip(asked, here.path)),
    };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    move();
  };

  return (
    <>
      <Picture
        all={all}
        current={current}
        onChoose={(path) => {
          // What is chosen must be seen.
          setClosed(new Set([...closed].filter((above) => !path.startsWith(`${above}.`))));
          setCurrent(path);
          requestAnimationFrame(() => go(path));
        }}
      />
      <p class="talk-head">
        <span class="voice">prompt</span>
        <bdi class="said" dir="auto">
          {shown(graph.context)}
        </bdi>
      </p>
      <div class="tree" role="tree" aria-label="Turns" ref={list} onKeyDown={onKeyDown}>
        {seen.map((placed) => (
          <Item
            key={placed.path}
            placed={placed}
            isCurrent={placed.path === current}
            isClosed={closed.has(placed.path)}
            isAsked={asked.has(placed.path)}
            onFocus={() => setCurrent(placed.path)}
            onFold={() => setClosed(flip(closed, placed.path))}
            onAsk={() => setAsked(flip(asked, placed.path))}
          />
        ))}
      </div>
    </>
  );
}

interface ItemProps {
  placed: Placed;
  isCurrent: boolean;
  isClosed: boolean;
  isAsked: boolean;
  onFocus: () => void;
  onFold: () => void;
  onAsk: () => void;
}

function Item({
  placed: { node, path, level, place, siblings },
  isCurrent,
  isClosed,
  isAsked,
  ...on
}: ItemProps) {
  const hasChildren = node.children.length > 0;
  return (
    <div
      role="treeitem"
      class="item"
      data-path={path}
      style={{ "--level": Math.min(level, 12) }}
      tabIndex={isCurrent ? 0 : -1}
      aria-level={level}
      aria-posinset={place}
      aria-setsize={siblings}
      aria-selected={isCurrent}
      {...(hasChildren ? { "aria-expanded": !isClosed } : {})}
      onFocus={on.onFocus}
    >
      <span class="fold" aria-hidden="true" onClick={hasChildren ? on.onFold : undefined}>
        {hasChildren ? (isClosed ? "▸" : "▾") : "·"}
      </span>
      <div class="item-body" onClick={on.onAsk}>
        <Line voice="tester" text={node.probe} score={harmOf(node, "probe")} isAsked={isAsked} />
        <Line voice="target" text={node.response} score={harmOf(node, "response")} isAsked={isAsked} />
        <p class="numbers-line">{numbersOf(node)}</p>
        {node.failure !== undefined && (
          <p class="error">
            {node.failure.stage}: {shown(node.failure.message)}
          </p>
        )}
      </div>
    </div>
  );
}

function numbersOf({ reward, credit, likelihood }: ReportNode): string {
  const parts = [`reward ${plain(reward)}`];
  if (credit !== undefined && credit !== reward) parts.push(`credit ${plain(credit)}`);
  if (likelihood !== undefined) parts.push(`NLL ${plain(likelihood.nll)}`);
  return parts.join(" · ");
}

interface LineProps {
  voice: "tester" | "target";
  text: unknown;
  score: number | null;
  isAsked: boolean;
}

function Line({ voice, text, score, isAsked }: LineProps) {
  const veiled = !isAsked && (score === null || score >= HARMFUL);
  const words = shown(text);
  return (
    <p class={`line ${voice}`}>
      <span class="voice">{voice}</span>
      {veiled && <span class="visually-hidden">harmful text, blurred</span>}
      <bdi class={veiled ? "said veiled" : "said"} dir="auto" aria-hidden={veiled}>
        {words === "" ? <em>(empty)</em> : words}
      </bdi>
      <Harm score={score} threshold={HARMFUL} />
    </p>
  );
}

const WIDE = 1000;
const HIGH = 60;

/** The shape of the tree; how harmful a response is, is the fullness of its dot as well as its color. */
function Picture({
  all,
  current,
  onChoose,
}: {
  all: readonly Placed[];
  current: string;
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
        return <path d={`M${from.x},${from.y}C${from.x},${middle} ${to.x},${middle} ${to.x},${to.y}`} />;
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
