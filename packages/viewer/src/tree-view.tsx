import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ReportGraph } from "@astra-rl/records";
import { Calls } from "./calls.js";
import { EarlierMessages, mayBeHarmful, Said } from "./said.js";
import { shown } from "./shown.js";
import { Picture } from "./tree-picture.js";
import { bestPath, harmOf, openNodes, placedNodes, type Placed } from "./tree.js";
import { HARMFUL, Line, NodeNumbers } from "./turn.js";

/** One tree, as a picture and as a list with keyboard navigation. */
export function Tree({ graph, at }: { graph: ReportGraph; at: string }) {
  const all = useMemo(() => placedNodes(graph), [graph]);
  const best = useMemo(() => bestPath(all), [all]);
  const linked = all.find(({ path }) => path === at)?.path;
  const [current, setCurrent] = useState(linked ?? all[0]?.path ?? "");
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const [asked, setAsked] = useState<ReadonlySet<string>>(new Set());
  const list = useRef<HTMLDivElement>(null);
  const seen = openNodes(all, closed);
  // A search may open a turn far down.
  useEffect(() => {
    if (linked === undefined) return;
    list.current?.querySelector(`[data-path="${linked}"]`)?.scrollIntoView({ block: "center" });
  }, [linked]);

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

  const prompt = graph.promptMessages ?? [["prompt", String(graph.context)] as const];
  return (
    <>
      <Picture
        all={all}
        current={current}
        best={best}
        onChoose={(path) => {
          // The chosen turn must be visible.
          setClosed(new Set([...closed].filter((above) => !path.startsWith(`${above}.`))));
          setCurrent(path);
          requestAnimationFrame(() => go(path));
        }}
      />
      <EarlierMessages messages={prompt.slice(0, -1)} />
      <p class="talk-head">
        <span class="voice">{prompt.at(-1)![0]}</span>
        <Said text={prompt.at(-1)![1]} />
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

/** The turns sampled from one state, side by side, as compared by the algorithm. */
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
  const failure = node.failure ?? node.unanswered;
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
        <Calls
          calls={node.calls ?? node.failure?.calls}
          diverged={node.diverged}
          veiled={!isAsked && mayBeHarmful(harmOf(node, "response"), HARMFUL)}
        />
        <Line voice="target" text={node.response} score={harmOf(node, "response")} isAsked={isAsked} />
        <p class="numbers-line">
          {isBest && <span class="best-mark">★ best path</span>}
          <NodeNumbers node={node} />
        </p>
        {failure !== undefined && (
          <p class="error">
            {failure.stage}: {shown(failure.message)}
          </p>
        )}
      </div>
    </div>
  );
}
