import { Tokenizer } from "@astra-rl/lm";
import { beforeAll, describe, expect, it } from "vitest";
import { modelSource } from "@astra-rl/assembly";
import { RequestReader } from "../src/reading.js";

const messages = [{ role: "user", content: "Hello." }];

describe("the sampling settings of a request", () => {
  let tokenizer: Tokenizer;
  beforeAll(async () => {
    tokenizer = await Tokenizer.load(modelSource("embedded:chat"));
  });
  const read = (
    sampling: object,
    body: object,
    endpoint: "chat/completions" | "completions" = "chat/completions",
  ) => {
    const shared = { name: "m", role: "tester", date: new Date(0), window: 64 } as const;
    const reader = new RequestReader([{ ...shared, sampling, tokenizerFiles: tokenizer.definingFiles }]);
    const bytes = new TextEncoder().encode(JSON.stringify({ model: "m", ...body }));
    const request = reader.read(`/v1/${endpoint}`, bytes);
    return { ...request.prompts[0]!.sampling!, within: request.stopsWithinTokens };
  };
  const api = {
    greedy: false,
    minNewTokens: 0,
    repetitionPenalty: 1,
    stopStrings: [],
    keepStopString: false,
    temperature: 1,
    topK: 0,
    topP: 1,
    within: false,
  };
  const run = {
    maxNewTokens: 12,
    minNewTokens: 2,
    temperature: 0.7,
    topK: 9,
    topP: 0.8,
    repetitionPenalty: 1.2,
    stopStrings: ["\n"],
    keepStopString: true,
    greedy: false,
  };

  it("are the API's defaults, or those of a run if given", () => {
    const room = read({}, { messages }).maxNewTokens;
    expect(read({}, { messages })).toEqual({ ...api, maxNewTokens: room });
    expect(room).toBeGreaterThan(20);
    expect(read({}, { prompt: "Hello." }, "completions")).toEqual({ ...api, maxNewTokens: 16 });
    expect(read(run, { messages })).toEqual({ ...run, within: false });
    expect(read(run, { prompt: "Hello." }, "completions")).toEqual({ ...run, within: false });
    // No request exceeds the window.
    expect(read({ maxNewTokens: 1000 }, { messages }).maxNewTokens).toBe(room);
  });

  it("are those of the request where it has them", () => {
    const asked = {
      temperature: 0.5,
      top_p: 0.5,
      top_k: 3,
      repetition_penalty: 2,
      min_tokens: 1,
      max_tokens: 7,
    };
    expect(read({ ...run, greedy: true }, { messages, ...asked, stop: "x" })).toEqual({
      maxNewTokens: 7,
      minNewTokens: 1,
      temperature: 0.5,
      topP: 0.5,
      topK: 3,
      repetitionPenalty: 2,
      stopStrings: ["x"],
      greedy: false,
      within: true,
    });
    expect(read(run, { messages, temperature: 0 }).greedy).toBe(true);
    expect(read({ ...run, greedy: true }, { messages }).greedy).toBe(true);
  });

  it("names the model if a template refuses a conversation, and no path", () => {
    const folder = modelSource("embedded:chat");
    expect(() => read({}, { messages: [{ role: "system", content: "x" }] })).toThrow("the last one must be");
    let message = "";
    try {
      read(
        {},
        { messages: [{ role: "assistant", content: "a" }, ...messages, ...messages], max_tokens: 1e6 },
      );
    } catch (error) {
      message = (error as Error).message;
    }
    expect(message).not.toBe("");
    expect(message).not.toContain(folder);
  });
});
