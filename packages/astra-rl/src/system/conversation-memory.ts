import type { ExpandRequest, GrowthMemory, NodeKey, Outcome } from "../core/index.js";
import { Level, type Speakers } from "./level.js";
import type { TurnTokens } from "./turn-tokens.js";

/** What a growing tree's conversations hold, level by level. */
export class ConversationMemory implements GrowthMemory {
  readonly #owner: object;
  readonly #speakers: Speakers;
  readonly #register: (key: NodeKey, level: Level, row: number) => void;
  #level: Level | null = null;

  /** @param owner whose tokens a turn's nodes keep @param register told where each key grows */
  constructor(
    owner: object,
    speakers: Speakers,
    register: (key: NodeKey, level: Level, row: number) => void,
  ) {
    this.#owner = owner;
    this.#speakers = speakers;
    this.#register = register;
  }

  async beginLevel(requests: readonly ExpandRequest[]): Promise<void> {
    const before = this.#level;
    const next = (await before?.next(requests)) ?? null;
    if (next === null) before?.close();
    this.#level = next;
    this.#level ??= await Level.begin(this.#owner, this.#speakers, requests);
    const level = this.#level;
    requests.forEach(({ key }, row) => this.#register(key, level, row));
  }

  probed(probes: readonly string[]): void {
    this.#level!.probed(probes);
  }

  endLevel(outcomes: readonly Outcome[]): (TurnTokens | undefined)[] {
    const kept = this.#level!.end(outcomes);
    return kept.map((tokens) => (tokens.tester === null && tokens.target === null ? undefined : tokens));
  }

  close(): void {
    this.#level?.close();
    this.#level = null;
  }
}
