import { UsageError } from "@astra-rl/torch";
import { Message, type Conversation, type GenerateOptions, type Model, type Work } from "../core/index.js";

/**
 * A tester that says what was said before: turn by turn, the probes of one attack in each episode, whatever the target answers.
 */
export class ReplayTester implements Model {
  readonly name = "tester";
  readonly role = "tester";
  readonly tellsLikelihood = false;
  readonly work: Work = { read: 0, generated: 0 };
  /** The probes of each episode's attack, in order, and how many of the tester's messages come with its prompt. */
  attacks: readonly { readonly probes: readonly string[]; readonly said: number }[] = [];

  /** @throws UsageError for an episode or a turn that no attack has */
  async generate(conversations: readonly Conversation[], { keys }: GenerateOptions): Promise<Message[]> {
    return conversations.map((conversation, row) => {
      const { episode } = keys[row]!;
      const attack = this.attacks[episode];
      const turn =
        conversation.messages().filter(({ from }) => from === "tester").length - (attack?.said ?? 0);
      const probe = attack?.probes[turn];
      if (probe === undefined)
        throw new UsageError(`replay: no attack has turn ${turn + 1} of episode ${episode}`);
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
