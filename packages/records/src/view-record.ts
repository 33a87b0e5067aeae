// Types only: what the server of `astra-rl view` sends to the page of the same build.

/** A run folder in the list. */
export interface ViewRun {
  /** Its path from the viewed folder, with slashes; "." for that folder itself. */
  id: string;
  state: "training" | "finished" | "stopped";
  /** Training steps done, and planned; null if the folder does not say. */
  steps: number;
  planned: number | null;
  /** When its first process started, as ISO 8601; null if the folder does not say. */
  started: string | null;
  /** When its metrics last changed, in milliseconds since 1970. */
  changed: number;
  tester: string | null;
  target: string | null;
  algorithm: string | null;
  seed: number | null;
  /** Whether the last evaluation says something about the target; rates without a verdict are not shown. */
  hasVerdict: boolean;
  /** Of the last evaluation; null before the first. */
  success: number | null;
  harmless: number | null;
  /** Success with each cluster of attacks counted once. */
  clusters: number | null;
  nll: number | null;
}

export interface ViewList {
  /** The viewed folder. */
  folder: string;
  /** The latest first. */
  runs: ViewRun[];
  /** Evaluation files outside of run folders, by their paths. */
  evaluations: string[];
}

/** A training graph in a run's list. */
export interface GraphEntry {
  step: number | null;
  /** The beginning of its prompt. */
  prompt: string;
  /** The highest score of a response; null if none has one. */
  worst: number | null;
  nodes: number;
}

/** A turn that a text search found. */
export interface GraphHit {
  run: string;
  /** Place of the graph in its run. */
  graph: number;
  step: number | null;
  /** Places from the root on, such as "0.1.0"; "" for the prompt. */
  path: string;
  prompt: string;
  probe: string;
  response: string;
  /** Scores; null where there is none. */
  probe_harm: number | null;
  response_harm: number | null;
}

export interface GraphHits {
  /** Turns and prompts with the text; `hits` has the first of them. */
  total: number;
  hits: GraphHit[];
}
