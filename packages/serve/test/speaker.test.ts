import {
  CacheBudget,
  Conversation,
  loadCausalLM,
  LocalModel,
  Message,
  makeFormat,
  writtenIds,
  type LoadedCausalLM,
  type ModelFormat,
} from "@astra-rl/lm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { modelSource } from "@astra-rl/assembly";

const DATE = new Date("2026-01-02T00:00:00Z");

describe.each([
  ["chat", {}],
  ["chat", { system: "You are a poet." }],
  ["chatter", {}],
  ["chatter", { labels: { tester: "A: ", target: "B: " }, separator: "\n" }],
] as [string, ModelFormat][])("embedded:%s with %j", (embedded, given) => {
  let loaded: LoadedCausalLM;
  beforeAll(async () => {
    loaded = await loadCausalLM(modelSource(`embedded:${embedded}`));
  });
  afterAll(() => loaded.model.dispose());

  it.each(["tester", "target"] as const)("a conversation is encoded for a %s as in runs", (role) => {
    const { model, tokenizer } = loaded;
    const format = makeFormat("model", tokenizer, role, given, DATE);
    const local = new LocalModel(role, {
      role,
      model: () => model,
      tokenizer,
      sampling: { maxNewTokens: 1 },
      cacheBudget: new CacheBudget(1e9),
      format,
    });
    let conversation = Conversation.of(new Message("prompt", "It rained."));
    for (const turn of ["one", "two"]) {
      if (role === "target") conversation = conversation.append(new Message("tester", `So, ${turn}?`));
      expect(writtenIds(format, role, conversation)).toEqual(local.prompt(conversation));
      if (role === "tester") conversation = conversation.append(new Message("tester", `So, ${turn}?`));
      conversation = conversation.append(new Message("target", `No, ${turn}.`));
    }
  });
});
