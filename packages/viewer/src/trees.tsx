import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import type { GraphEntry, ReportGraph, ReportNode, ReportRun } from "astra-rl/records";
import { plain, whole } from "./figures.js";
import { Harm } from "./harm.js";
import { useRevealed } from "./revealed.js";
import { shown, visible } from "./shown.js";
import { numberIn, usePlace } from "./place.js";
import { Term } from "./terms.js";
import { bestPath, harmOf, layout, openNodes, placedNodes, worstResponse, type Placed } from "./tree.js";

/** A text scored at least this high counts as harmful: what training itself watches by. */
const HARMFUL = 0.5;

/** Where the training graphs of a run come from: a report holds them, a server is asked for each. */
export interface GraphSource {
  run: string;
  entries: readonly GraphEntry[];
  /** Graphs of the run; a report may hold fewer. */
  total: number;
  load: (index: number) => ReportGraph | Promise<ReportGraph>;
}

/** The graphs that a report holds. */
export function heldGraphs({ label, graphs, graphs_total: total }: ReportRun): GraphSource {
  const entries = graphs.map((graph): GraphEntry => {
    const prompt = shown(graph.context);
    return {
      step: graph.step ?? null,
      prompt,
      worst: worstResponse(graph),
      nodes: placedNodes(graph).length,
    };
  });
  return { run: label, entries, total, load: (index) => graphs[index]! };
}

/** The trees that runs learned from, one at a time. */
export function Trees({ sources }: { sources: readonly GraphSource[] }) {
  const id = useId();
  const place = usePlace();
  const [run, setRun] = useState(0);
  const source = sources[run] ?? sources[0]!;
  const { entries, total } = source;
  const [wanted, setWanted] = useState<number | null>(null);
  const chosen = Math.min(wanted ?? entries.length - 1, entries.length - 1);
  const graph = useGraph(source, chosen);
  const steps = useMemo(() => [...new Set(entries.map(({ step }) => step ?? 0))], [entries]);
  const step = entries[chosen]?.step ?? 0;
  const ofStep = entries.flatMap((other, index) => ((other.step ?? 0) === step ? [index] : []));
  const section = useRef<HTMLElement>(null);
  // A search or a link leads here.
  const [linkedRun, linkedGraph, linkedNode] = [
    numberIn(place, "r"),
    numberIn(place, "g"),
    place.get("n") ?? "",
  ];
  useEffect(() => {
    if (linkedGraph === null || linkedGraph >= entries.length) return;
    setRun(linkedRun ?? 0);
    setWanted(linkedGraph);
    section.current?.scrollIntoView();
  }, [linkedRun, linkedGraph, linkedNode]);
  return (
    <section aria-labelledby={`${id}-title`} ref={section}>
      <h2 id={`${id}-title`}>Training graphs</h2>
      <p class="note">
        {entries.length === total
          ? `${whole(total)} trees, as they were learned from.`
          : `${whole(entries.length)} of the ${whole(total)} trees that were learned from, evenly spread.`}{" "}
        In the tree: arrow keys move, Enter shows or blurs a harmful text. The best path has the highest total
        reward.
      </p>
      <div class="controls">
        {sources.length > 1 && (
          <label>
            Run
            <select
              value={String(run)}
              onChange={(event) => {
                setRun(Number(event.currentTarget.value));
                setWanted(null);
              }}
            >
              {sources.map(({ run: label }, index) => (
                <option value={String(index)}>{shown(label)}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          Step
          <select
            value={String(step)}
            onChange={(event) =>
              setWanted(entries.findIndex((entry) => (entry.step ?? 0) === Number(event.currentTarget.value)))
            }
          >
            {steps.map((each) => (
              <option value={String(each)}>{each === 0 ? "not known" : whole(each)}</option>
            ))}
          </select>
        </label>
        <label class="wide">
          Tree
          <select value={String(chosen)} onChange={(event) => setWanted(Number(event.currentTarget.value))}>
            {ofStep.map((index) => (
              <option value={String(index)}>{nameOf(entries[index]!)}</option>
            ))}
          </select>
        </label>
        <span class="buttons">
          <button type="button" disabled={chosen <= 0} onClick={() => setWanted(chosen - 1)}>
            Previous
          </button>
          <button type="button" disabled={chosen >= entries.length - 1} onClick={() => setWanted(chosen + 1)}>
            Next
          </button>
        </span>
      </div>
      {typeof graph === "string" && <p role="alert">{graph}</p>}
      {typeof graph === "object" && graph !== null && (
        <Tree
          key={`${source.run}-${chosen}`}
          graph={graph}
          at={linkedGraph === chosen && (linkedRun ?? 0) === run ? linkedNode : ""}
        />
      )}
    </section>
  );
}

/** The graph, null while it is fetched, or why it cannot be shown. */
function useGraph(source: GraphSource, index: number): ReportGraph | string | null {
  const [loaded, setLoaded] = useState<{ of: string; graph: ReportGraph | string } | null>(null);
  const of = `${source.run} ${index}`;
  const held = useMemo(() => (index < 0 ? null : source.load(index)), [of]);
  useEffect(() => {
    if (!(held instanceof Promise)) return;
    let isCurrent = true;
    held
      .catch((error: unknown) => `This tree cannot be shown: ${String(error)}`)
      .then((graph) => isCurrent && setLoaded({ of, graph }));
    return () => {
      isCurrent = false;
    };
  }, [of]);
  if (!(held instanceof Promise)) return held;
  return loaded?.of === of ? loaded.graph : null;
}

function nameOf({ prompt, worst }: GraphEntry): string {
  const text = shown(prompt);
  const short = text.length > 60 ? `${text.slice(0, 59)}…` : text;
  return `${worst !== null && worst >= HARMFUL ? "◀ " : ""}${short}`;
}

/** One tree, as a picture and as a list that keys move in. */
function Tree({ graph, at }: { graph: ReportGraph; at: string }) {
  const all = useMemo(() => placedNodes(graph), [graph]);
  const best = useMemo(() => bestPath(all), [all]);
  const [current, setCurrent] = useState(at || (all[0]?.path ?? ""));
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
        best={best}
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
            isBest={best.has(placed.path)}
            isClosed={closed.has(placed.path)}
            isAsked={asked.has(placed.path)}
            onFocus={() => setCurrent(placed.path)}
            onFold={() => setClosed(flip(closed, placed.path))}
            onAsk={() => setAsked(flip(asked, placed.path))}
          />
        ))}
      </div>
      <Siblings all={all} current={current} asked={asked} best={best} />
    </>
  );
}

/** The turns that were sampled from one state, beside each other: what the algorithm compared. */
function Siblings({
  all,
  current,
  asked,
  best,
}: {
  all: readonly Placed[];
  current: string;
  asked: ReadonlySet<string>;
  best: ReadonlySet<string>;
}) {
  const here = all.find(({ path }) => path === current);
  if (here === undefined || here.siblings < 2) return null;
  const siblings = all.filter(({ parent }) => parent === here.parent);
  return (
    <section class="siblings" aria-label="Siblings of the chosen turn">
      <h3>Sampled from the same state</h3>
      <div class="sibling-columns">
        {siblings.map(({ node, path }) => (
          <div class={path === current ? "talk current" : "talk"} key={path}>
            <Line voice="tester" text={node.probe} score={harmOf(node, "probe")} isAsked={asked.has(path)} />
            <Line
              voice="target"
              text={node.response}
              score={harmOf(node, "response")}
              isAsked={asked.has(path)}
            />
            <p class="numbers-line">
              {best.has(path) && <span class="best-mark">★ best path</span>}
              <NodeNumbers node={node} />
            </p>
          </div>
        ))}
      </div>
    </section>
  );
}

interface ItemProps {
  placed: Placed;
  isCurrent: boolean;
  isBest: boolean;
  isClosed: boolean;
  isAsked: boolean;
  onFocus: () => void;
  onFold: () => void;
  onAsk: () => void;
}

function Item({
  placed: { node, path, level, place, siblings },
  isCurrent,
  isBest,
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
        <Line
          voice="tester"
          text={node.probe}
          score={harmOf(node, "probe")}
          isAsked={isAsked}
          shading={node.shading}
        />
        <Line voice="target" text={node.response} score={harmOf(node, "response")} isAsked={isAsked} />
        <p class="numbers-line">
          {isBest && <span class="best-mark">★ best path</span>}
          <NodeNumbers node={node} />
        </p>
        {node.failure !== undefined && (
          <p class="error">
            {node.failure.stage}: {shown(node.failure.message)}
          </p>
        )}
      </div>
    </div>
  );
}

/** Reward with its terms, credit, likelihood. */
function NodeNumbers({ node: { reward, credit, likelihood, terms = {} } }: { node: ReportNode }) {
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

function Line({ voice, text, score, isAsked, shading }: LineProps) {
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

const WIDE = 1000;
const HIGH = 60;

/** The shape of the tree; how harmful a response is, is the fullness of its dot as well as its color. */
function Picture({
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
