import { UsageError } from "@astra-rl/base";
import { Message, type Conversation } from "@astra-rl/lm";
import { nextKeys } from "../tree/index.js";
import type { System } from "../system/index.js";
import type { GenerateOptions, Model, Work } from "./model.js";

/**
 * A tester that repeats recorded probes: turn by turn, those of one attack in each episode, regardless of the target's
 * responses.
 * An episode is a single path, and its first call for a probe comes with the state that it starts from.
 */
export class ReplayTester implements Model {
  readonly name = "tester";
  readonly role = "tester";
  readonly tellsLikelihood = false;
  readonly work: Work = { read: 0, generated: 0 };
  #first = 0;
  /** The probes of each episode's attack, in order. */
  #attacks: readonly (readonly string[])[] = [];
  /** Messages of the tester's side in the state that an episode starts from. */
  readonly #said = new Map<number, number>();

  /** @param first the episode of the first attack; further ones count up */
  say(attacks: readonly (readonly string[])[], first = 0): void {
    this.#attacks = attacks;
    this.#first = first;
    this.#said.clear();
  }

  /** Replaces a system's tester as the source of probes. */
  takeOver(system: System): void {
    const value: System["rolloutPromptWithTester"] = (contexts, keys = nextKeys(contexts.length)) =>
      this.generate(contexts, { keys });
    Object.defineProperty(system, "rolloutPromptWithTester", { configurable: true, value });
  }

  /** @throws UsageError for an episode or a turn that no attack has */
  async generate(conversations: readonly Conversation[], { keys }: GenerateOptions): Promise<Message[]> {
    return conversations.map((conversation, row) => {
      const { episode } = keys[row]!;
      const said = conversation.messages().filter(({ from }) => from === "tester").length;
      if (!this.#said.has(episode)) this.#said.set(episode, said);
      const turn = said - this.#said.get(episode)!;
      const probe = this.#attacks[episode - this.#first]?.[turn];
      if (probe === undefined)
        throw new UsageError(
          "past-the-replay",
          `replay: no attack has turn ${turn + 1} of episode ${episode}`,
        );
      return new Message("tester", probe);
    });
  }

  release(): void {
    // Keeps nothing between turns.
  }

  dispose(): void {
    // Holds no resources.
  }
}
