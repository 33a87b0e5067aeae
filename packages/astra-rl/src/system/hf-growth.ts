import type { GenerationSession } from "@astra-rl/lm";
import { AstraError } from "@astra-rl/torch";
import {
  likelihoodOf,
  type Assessment,
  type ExpandRequest,
  type Growth,
  type Outcome,
  type Turn as JudgedTurn,
} from "../core/index.js";
import type { ModelRole, Utterance } from "./model-role.js";
import { nextContexts, tokensOf, type SpokenTokens, type TurnTokens } from "./turn-tokens.js";

/** What a growth needs of the system that it grows for. */
export interface GrowthSystem {
  readonly tester: ModelRole;
  readonly target: ModelRole;
  /** Tester and target give the same ids to the same text. */
  readonly sharedTokens: boolean;
  /** The target's weights are the baseline's as well, so that one reading of the probe serves both. */
  readonly targetIsBaseline: boolean;
  advance(context: string, probe: string, response: string): string;
  judge(turns: readonly JudgedTurn[]): Promise<Assessment[]>;
}

/** The level that was grown last: its sessions, and which row of them holds which turn. */
interface Level {
  /** Rows hold context + probe. */
  tester: GenerationSession;
  /** Rows hold context + probe + response. */
  target: GenerationSession;
  rows: Map<TurnTokens, number>;
}

/** Probes, row by row, as the target has read them. */
interface Reading {
  probes: readonly Utterance[];
  /** One number for each id that the target read. */
  targetLogprobs: readonly (readonly number[])[];
  testerContexts: readonly (readonly number[])[];
}

interface Turn {
  probe: string;
  response: string;
  tokens: TurnTokens;
}

/**
 * Grows a tree level by level with one session per model, so that no model reads a token twice: a level's rows extend
 * copies of their parents' rows, and siblings start from one reading of what they share.
 *
 * The tester has its own probes before it by having written them, and reads the responses. The target reads the
 * probes, which gives their likelihood, and has its own responses before it by having written them.
 */
export class HFGrowth implements Growth {
  readonly #system: GrowthSystem;
  #level: Level | null = null;
  #closed = false;

  constructor(system: GrowthSystem) {
    this.#system = system;
  }

  async expand(requests: readonly ExpandRequest[]): Promise<Outcome[]> {
    if (this.#closed) throw new AstraError("internal: a growth was used after it was closed");
    if (requests.length === 0) return [];
    const level = this.#start(requests);
    const turns = this.#speak(level, requests);
    level.rows = new Map(turns.map(({ tokens }, row) => [tokens, row]));

    const assessments = await this.#system.judge(
      turns.map(({ probe, response, tokens }, row) => {
        const { context, key } = requests[row]!;
        return { context, probe, response, key, likelihood: likelihoodOf(tokens.targetLogprobs) };
      }),
    );
    return turns.map((turn, row) => {
      const next = this.#system.advance(requests[row]!.context, turn.probe, turn.response);
      return { ...turn, next, ...assessments[row]! };
    });
  }

  close(): void {
    this.#closed = true;
    this.#level?.tester.dispose();
    this.#level?.target.dispose();
    this.#level = null;
  }

  #speak(level: Level, requests: readonly ExpandRequest[]): Turn[] {
    const { tester, target } = this.#system;
    const keys = requests.map((request) => request.key);
    const probes = tester.speak(level.tester, keys);
    // What a row holds is what its model had before it, shortened where the window was full.
    const testerRows = level.tester.rows();
    const probeTokens = probes.map((probe) => this.#spoken(probe, target));
    const targetLogprobs = target.read(
      level.target,
      probeTokens.map(({ heard }) => heard),
    );
    const testerContexts = testerRows.map((ids, row) => before(ids, probeTokens[row]!.kept.length));
    const baselineLogprobs = this.#baseline(level.target, { probes, targetLogprobs, testerContexts });
    const responses = target.speak(level.target, keys);
    const targetRows = level.target.rows();
    return probes.map((probe, row) => {
      const probeIds = probeTokens[row]!;
      const responseIds = this.#spoken(responses[row]!, tester);
      return {
        probe: probe.text,
        response: responses[row]!.text,
        tokens: {
          owner: this.#system,
          testerContext: testerContexts[row]!,
          targetContext: before(targetRows[row]!, probeIds.heard.length + responseIds.kept.length),
          probe: probeIds,
          response: responseIds,
          testerLogprobs: probe.logprobs,
          targetLogprobs: targetLogprobs[row]!,
          baselineLogprobs: baselineLogprobs[row]!,
        },
      };
    });
  }

  #spoken({ ids, text, silentEnd }: Utterance, listener: ModelRole): SpokenTokens {
    const kept = silentEnd === null ? ids : ids.slice(0, -1);
    return { sampled: ids, kept, heard: this.#system.sharedTokens ? kept : listener.tokenizer.encode(text) };
  }

  /**
   * What the baseline thinks of the probes, where the target's reading of them has already told it: not where a full
   * window has left the target another context than the tester had. Only a silent end is missing there, since the
   * target does not read it; it is looked up where the reading stopped.
   */
  #baseline(
    session: GenerationSession,
    { probes, targetLogprobs, testerContexts }: Reading,
  ): (readonly number[] | null)[] {
    if (!this.#system.targetIsBaseline || !this.#system.sharedTokens) return probes.map(() => null);
    const ends = this.#system.target.peek(
      session,
      probes.map((probe) => probe.silentEnd),
    );
    const rows = session.rows();
    return targetLogprobs.map((logprobs, row) => {
      if (!same(before(rows[row]!, logprobs.length), testerContexts[row]!)) return null;
      const end = ends[row] ?? null;
      return end === null ? logprobs : [...logprobs, end];
    });
  }

  /** Sessions with one row for each request, ready for the tester to speak; from here on close() frees them. */
  #start(requests: readonly ExpandRequest[]): Level {
    const parents = requests.map(({ parent }) => (parent === null ? null : tokensOf(this.#system, parent)));
    const level = this.#level;
    const known = parents.filter(
      (tokens): tokens is TurnTokens => tokens !== null && level?.rows.has(tokens) === true,
    );
    if (level !== null && known.length === requests.length) {
      this.#extend(level, known);
      return level;
    }
    level?.tester.dispose();
    level?.target.dispose();
    this.#level = null;
    return (this.#level = this.#open(requests, parents));
  }

  /** Turns the sessions of a level into those of the next. */
  #extend(level: Level, parents: readonly TurnTokens[]): void {
    const distinct = [...new Set(parents)];
    const rows = distinct.map((parent) => level.rows.get(parent)!);
    const children = parents.map((parent) => distinct.indexOf(parent));
    // The responses are read once for each parent, not once for each child.
    level.tester = replaced(level.tester, rows);
    this.#system.tester.read(
      level.tester,
      distinct.map((parent) => parent.response.heard),
    );
    level.tester = replaced(level.tester, children);
    level.target = replaced(
      level.target,
      children.map((child) => rows[child]!),
    );
  }

  /** Sessions that begin anew: at prompts, or at contexts whose turns were grown elsewhere. */
  #open(requests: readonly ExpandRequest[], parents: readonly (TurnTokens | null)[]): Level {
    const { tester, target } = this.#system;
    const contexts = requests.map(({ context }, row) => {
      const parent = parents[row]!;
      if (parent !== null) return nextContexts(parent);
      return { tester: tester.tokenizer.encode(context), target: target.tokenizer.encode(context) };
    });
    const session = openShared(
      tester,
      contexts.map((context) => context.tester),
    );
    try {
      const ids = contexts.map((context) => context.target);
      return { tester: session, target: openShared(target, ids), rows: new Map() };
    } catch (error) {
      session.dispose();
      throw error;
    }
  }
}

/** A row without what was appended to it last. */
function before(row: readonly number[], appended: number): number[] {
  return row.slice(0, Math.max(0, row.length - appended));
}

const same = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((id, index) => id === b[index]);

/** A session with a row for each context, equal contexts read once. */
function openShared(role: ModelRole, contexts: readonly (readonly number[])[]): GenerationSession {
  const rows = new Map<string, number>();
  const distinct: (readonly number[])[] = [];
  const places = contexts.map((context) => {
    const key = context.join();
    const place = rows.get(key) ?? distinct.length;
    if (place === distinct.length) distinct.push(context);
    rows.set(key, place);
    return place;
  });
  const session = role.open(distinct);
  try {
    return replaced(session, places);
  } catch (error) {
    session.dispose();
    throw error;
  }
}

/** The session with these of its rows, in this order; the one that was given is used up. */
function replaced(session: GenerationSession, rows: readonly number[]): GenerationSession {
  if (rows.length === session.rowCount && rows.every((row, index) => row === index)) return session;
  return session.fork(rows, { consume: true });
}
