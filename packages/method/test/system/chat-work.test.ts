import {
  CacheBudget,
  Conversation,
  loadCausalLM,
  LocalModel,
  Message,
  makeFormat,
  type LoadedCausalLM,
} from "@astra-rl/lm";
import { afterAll, beforeAll, expect, it } from "vitest";
import { modelSource } from "@astra-rl/assembly";

let loaded: LoadedCausalLM;
beforeAll(async () => {
  loaded = await loadCausalLM(modelSource("embedded:chat"));
});
afterAll(() => loaded.model.dispose());

it.each([
  ["tester", 1],
  ["target", 1],
  ["tester", 4],
  ["target", 4],
] as const)(
  "a %s reads each token of a chat of three turns once, also where %i chats go together",
  async (role, width) => {
    const { model, tokenizer } = loaded;
    const format = makeFormat("model", tokenizer, role, { system: "You are a poet." }, new Date(0));
    const sampling = { maxNewTokens: 10, temperature: 1 };
    const local = new LocalModel(role, {
      role,
      model: () => model,
      tokenizer,
      sampling,
      cacheBudget: new CacheBudget(1e9),
      format,
    });
    let chats = Array.from({ length: width }, (_, at) => {
      const start = Conversation.of(new Message("prompt", `It rained for ${at} days.`));
      return role === "tester" ? start : start.append(new Message("tester", "So?"));
    });
    let own = 0;
    for (let turn = 0; turn < 3; turn += 1) {
      const keys = chats.map((_, node) => ({ seed: 1, episode: turn, node }));
      const messages = await local.generate(chats, { keys });
      if (turn === 2) break;
      own += messages.reduce((sum, { sampled }) => sum + sampled!.kept, 0);
      const other = role === "tester" ? "target" : "tester";
      chats = chats.map((chat, at) =>
        chat.append(messages[at]!, new Message(other, `No, ${turn} of ${at}.`)),
      );
    }
    const whole = chats.reduce((sum, chat) => sum + local.prompt(chat).length, 0);
    expect(own).toBeGreaterThan(0);
    expect(local.work.read).toBe(whole - own);
    local.release();
  },
);
