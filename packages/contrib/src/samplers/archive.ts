import { UsageError, type Json } from "@astra-rl/base";
import { isRewarded, jsonOf, type Graph, type JSONOf } from "@astra-rl/method";
import type { Conversation } from "@astra-rl/lm";

/** A state in which a high-reward turn was found. */
export interface Opening<S = Conversation> {
  /** As JSON, a conversation as its text, so that a resumed run starts from the same value as an uninterrupted one. */
  context: JSONOf<S>;
  /** The best reward of a turn taken in this state. */
  reward: number;
  /** Number of turns from a prompt to it. */
  turns: number;
}

export interface ArchiveOptions {
  /** Maximum number of openings: the highest rewards are kept, older ones first among equals. */
  capacity: number;
  /** Minimum reward of a kept opening. */
  minReward: number;
  /** Exclusive upper bound on an opening's turns. */
  longest: number;
}

/**
 * The states in which the best turns were found. Each graph contributes one: the state of its highest-reward turn.
 *
 * Its contents depend only on the graphs added and their order.
 */
export class Archive<S = Conversation> {
  readonly #options: ArchiveOptions;
  /** Sorted by reward, highest first. */
  #openings: Opening<S>[] = [];

  constructor(options: ArchiveOptions) {
    this.#options = options;
  }

  get openings(): readonly Opening<S>[] {
    return this.#openings;
  }

  /** Adds finished graphs, in episode order. */
  add<A>(graphs: readonly Graph<S, A>[]): void {
    // A replayed graph starts at its opening, whose turns count as well.
    const turnsBefore = new Map(this.#openings.map(({ context, turns }) => [name(context), turns]));
    for (const graph of graphs) {
      const found = best(graph, turnsBefore.get(name(graph.context)) ?? 0);
      if (found === null) continue;
      const { minReward, longest } = this.#options;
      if (found.reward >= minReward && found.turns < longest) this.#insert(found);
    }
  }

  getState(): Json {
    return this.#openings.map(({ context, reward, turns }) => ({ context: context as Json, reward, turns }));
  }

  /** @throws UsageError for anything but the state of an archive */
  setState(state: Json): void {
    if (!Array.isArray(state) || !state.every(isOpening)) {
      throw new UsageError("invalid-state", "Archive.setState: the state was not returned by getState()");
    }
    this.#openings = (state as unknown as Opening<S>[]).map((opening) => ({ ...opening }));
  }

  #insert(opening: Opening<S>): void {
    const known = this.#openings.findIndex(({ context }) => name(context) === name(opening.context));
    if (known >= 0) {
      if (this.#openings[known]!.reward >= opening.reward) return;
      this.#openings.splice(known, 1);
    }
    const at = this.#openings.findIndex(({ reward }) => reward < opening.reward);
    this.#openings.splice(at < 0 ? this.#openings.length : at, 0, opening);
    this.#openings.length = Math.min(this.#openings.length, this.#options.capacity);
  }
}

/** The state of a graph's highest-reward turn, the first among equals; null for a graph without judged turns. */
function best<S, A>(graph: Graph<S, A>, before: number): Opening<S> | null {
  let found: Opening<S> | null = null;
  const open = graph.children.map((node) => ({ node, turns: before }));
  for (let place = open.shift(); place !== undefined; place = open.shift()) {
    const { node, turns } = place;
    if (isRewarded(node) && (found === null || node.reward > found.reward)) {
      found = { context: jsonOf(node.context), reward: node.reward, turns };
    }
    open.push(...node.children.map((child) => ({ node: child, turns: turns + 1 })));
  }
  return found;
}

/** States are equal if their JSON is equal. */
const name = (context: unknown): string => JSON.stringify(context);

function isOpening(value: Json): boolean {
  const { context, reward, turns } = (value ?? {}) as { [key: string]: Json };
  return context !== undefined && typeof reward === "number" && Number.isInteger(turns);
}
