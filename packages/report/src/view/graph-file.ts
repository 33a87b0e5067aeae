import { closeSync, readSync } from "node:fs";
import { UsageError } from "@astra-rl/base";
import {
  parseGraphRecord,
  type GraphEntry,
  type GraphHit,
  type GraphHits,
  type ReportGraph,
} from "@astra-rl/records";
import { slim } from "../report/index.js";
import { GrowingFile, LONGEST_LINE, openIfFile } from "./open-file.js";

const LONGEST_PROMPT = 120;

/** A node as in a line of graphs.jsonl. */
interface RawNode {
  probe?: unknown;
  response?: unknown;
  scores?: { probe?: number; response?: number };
  children?: RawNode[];
}

interface RawGraph {
  context?: unknown;
  step?: number;
  children?: RawNode[];
}

/**
 * The graphs of a run folder: their file offsets, list entries, and all texts in lower case for the search.
 * The file may grow, and a resumed run may truncate it.
 */
export class GraphFile {
  #entries: GraphEntry[] = [];
  /** Offsets of the graphs' lines, and the end of the last one. */
  #starts: number[] = [0];
  /** Texts of each graph in lower case, UTF-8: the prompt, then for each node in preorder its probe and response. */
  #texts: Buffer[] = [];
  /** Offset of each node of a graph in its text; the prompt begins at 0. */
  #places: Uint32Array[] = [];
  readonly #file: GrowingFile;

  constructor(readonly path: string) {
    this.#file = new GrowingFile(path);
  }

  /** Reads new lines. @returns whether the file was replaced or truncated, so that entries sent earlier are invalid */
  refresh(): boolean {
    let wasReset = false;
    this.#file.read(
      (line, end) => {
        this.#add(line);
        this.#starts.push(end);
      },
      () => {
        wasReset = true;
        this.#entries = [];
        this.#starts = [0];
        this.#texts = [];
        this.#places = [];
      },
    );
    return wasReset;
  }

  #add(line: string): void {
    const graph = rawGraph(line);
    const prompt = textOf(graph.context);
    let worst: number | null = null;
    const parts = [Buffer.from(prompt.toLowerCase())];
    const places: number[] = [];
    let length = parts[0]!.length;
    for (const { node } of preorder(graph)) {
      const score = node.scores?.response;
      if (typeof score === "number") worst = Math.max(worst ?? 0, score);
      // A match never spans two texts.
      const part = Buffer.from(`\0${textOf(node.probe)}\0${textOf(node.response)}`.toLowerCase());
      places.push(length);
      parts.push(part);
      length += part.length;
    }
    this.#texts.push(Buffer.concat(parts));
    this.#places.push(Uint32Array.from(places));
    const step = typeof graph.step === "number" ? graph.step : null;
    this.#entries.push({ step, prompt: prompt.slice(0, LONGEST_PROMPT), worst, nodes: places.length });
  }

  /** Entries from the given one on. */
  entries(from = 0): GraphEntry[] {
    return this.#entries.slice(from);
  }

  get total(): number {
    return this.#entries.length;
  }

  /** @throws UsageError for an invalid line, RangeError for a missing graph */
  graph(index: number): ReportGraph {
    return slim(parseGraphRecord(this.#line(index), `${this.path}:${index + 1}`));
  }

  #line(index: number): string {
    const [start, end] = [this.#starts[index], this.#starts[index + 1]];
    if (start === undefined || end === undefined) throw new RangeError(`there is no graph ${index}`);
    if (end - start > LONGEST_LINE) {
      throw new UsageError(
        "line-too-long",
        `${this.path}:${index + 1}: a line must have at most ${LONGEST_LINE >> 20} MiB`,
      );
    }
    const handle = openIfFile(this.path);
    if (handle === null) throw new RangeError(`there is no graph ${index}`);
    try {
      const bytes = Buffer.alloc(end - start - 1);
      readSync(handle, bytes, 0, bytes.length, start);
      return bytes.toString("utf8");
    } finally {
      closeSync(handle);
    }
  }

  /** Turns and prompts that contain a text, ignoring case. */
  search(run: string, query: string, limit: number): GraphHits {
    const wanted = Buffer.from(query.toLowerCase());
    const hits: GraphHit[] = [];
    let total = 0;
    if (wanted.length === 0) return { total, hits };
    for (const [index, text] of this.#texts.entries()) {
      const places = this.#places[index]!;
      // The node of a hit; −1: the prompt.
      let node = -1;
      const found: number[] = [];
      for (let at = text.indexOf(wanted); at >= 0;) {
        while (node + 1 < places.length && places[node + 1]! <= at) node += 1;
        found.push(node);
        const next = places[node + 1];
        at = next === undefined ? -1 : text.indexOf(wanted, next);
      }
      total += found.length;
      if (found.length > 0 && hits.length < limit) hits.push(...this.#hits(run, index, found));
    }
    return { total, hits: hits.slice(0, limit) };
  }

  #hits(run: string, index: number, found: readonly number[]): GraphHit[] {
    const graph = rawGraph(this.#line(index));
    const nodes = [...preorder(graph)];
    const { step, prompt } = this.#entries[index]!;
    return found.map((at) => {
      // −1: the prompt.
      const { node, path } = nodes[at] ?? { node: {} as RawNode, path: "" };
      return {
        run,
        graph: index,
        step,
        path,
        prompt,
        probe: textOf(node.probe ?? ""),
        response: textOf(node.response ?? ""),
        probe_harm: node.scores?.probe ?? null,
        response_harm: node.scores?.response ?? null,
      };
    });
  }
}

function rawGraph(line: string): RawGraph {
  try {
    return JSON.parse(line) as RawGraph;
  } catch {
    // The error is reported when the graph is opened.
    return { context: "(this line is not JSON)" };
  }
}

function* preorder(graph: RawGraph): Generator<{ node: RawNode; path: string }> {
  const placed = (nodes: readonly RawNode[] = [], above = "") =>
    nodes.map((node, index) => ({ node, path: above + String(index) })).reverse();
  // Without recursion: a record may be deeper than the stack.
  const waiting = placed(graph.children);
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    yield next;
    waiting.push(...placed(next.node.children, `${next.path}.`));
  }
}

const textOf = (value: unknown): string =>
  typeof value === "string" ? value : (JSON.stringify(value) ?? "");
