import { UsageError } from "@astra-rl/base";
import { z } from "zod";
import { Message, type Conversation } from "@astra-rl/lm";
import { defineKind } from "../kinds/index.js";
import type { Model, Work } from "./model.js";

/** Responds "…" in every conversation: for training in which only the tester's messages count. */
export class SilentModel implements Model {
  readonly role = "target";
  readonly tellsLikelihood = false;
  readonly work: Work = { read: 0, generated: 0 };

  constructor(readonly name = "target") {}

  async generate(conversations: readonly Conversation[]): Promise<Message[]> {
    return conversations.map(() => new Message("target", "…"));
  }

  release(): void {
    // Keeps nothing.
  }

  dispose(): void {
    // Holds no resources.
  }
}

export const silentKind = defineKind({
  role: "target",
  name: "silent",
  summary: 'Always responds "…": for training in which only the tester\'s messages count, as in harden',
  schema: z.strictObject({}),
  make: (_, { role, name, key }) => {
    if (role === "target") return new SilentModel(name);
    throw new UsageError("target-only", `${key}: a silent model can be a target only`);
  },
});
