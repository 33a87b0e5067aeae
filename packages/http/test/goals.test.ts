import fc from "fast-check";
import { expect, it } from "vitest";
import { Conversation, goalOf, Message } from "@astra-rl/lm";
import { chatMessages, plainText } from "../src/conversation.js";

const goals = fc
  .integer({ min: 1e5, max: 999_999 })
  .map((number) =>
    goalOf({ id: `g${number}`, text: `Name lock ZQ${number}ZQ {goal} $&`, context: `Page ZQ${number}ZQ` }),
  );
const talks = fc
  .array(fc.constantFrom("Why?", "", "東京 ", "{goal}"), { maxLength: 5 })
  .map((texts) =>
    Conversation.of(
      "Hello.",
      ...texts.map((text, at) => new Message(at % 2 === 0 ? "tester" : "target", text)),
    ),
  );

it("what a server gets as target is the same with a goal and without; a tester's server gets the goal once", () => {
  fc.assert(
    fc.property(talks, goals, (talk, goal) => {
      const told = talk.withGoal(goal);
      for (const role of ["tester", "target"] as const) {
        for (const bodyOf of [
          (each: Conversation) => JSON.stringify(chatMessages(each, role, "You chat.")),
          (each: Conversation) => plainText(each, role, { separator: "\n" }),
        ]) {
          if (role === "target") expect(bodyOf(told)).toBe(bodyOf(talk));
          else expect(bodyOf(told).split(/ZQ\d+ZQ/u)).toHaveLength(3);
        }
      }
      const [system] = chatMessages(told, "tester", "Seek {goal}.");
      expect(system).toEqual({ role: "system", content: `Seek ${goal.text}\n\n${goal.context}.` });
    }),
    { numRuns: 200 },
  );
});
