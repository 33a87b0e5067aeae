import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { servedModel, useServer } from "./serving.js";

type Said = { role: string; content: string }[];
interface Answer {
  output?: string;
  error?: string;
  metadata?: { messages: Said };
}
interface Provider {
  id(): string;
  callApi(prompt: string, context?: object): Promise<Answer>;
}
const { default: AstraProvider } = (await import("../../astra-rl/integrations/promptfoo.mjs" as string)) as {
  default: new (options: { id?: string; config?: object }) => Provider;
};
const { default: strategy } = (await import(
  "../../astra-rl/integrations/promptfoo-strategy.mjs" as string
)) as {
  default: {
    id: string;
    action: (
      tests: object[],
      variable: string,
      config: object,
    ) => Promise<{ provider: { id: string; config: object } }[]>;
  };
};

describe("promptfoo's provider", () => {
  const serving = useServer("chat", (loaded) => [servedModel(loaded, "best", { role: "tester" })]);
  const provider = (more: object = {}) =>
    new AstraProvider({
      config: { baseURL: `${serving.server.url}/v1`, model: "best", maxTokens: 8, seed: 3, ...more },
    });

  /** A target that answers with a number, and its requests. */
  function target() {
    const asked: Said[] = [];
    const callApi = async (prompt: string): Promise<Answer> => {
      asked.push(JSON.parse(prompt) as Said);
      return { output: `answer ${asked.length}` };
    };
    return { asked, originalProvider: { callApi } };
  }

  it("runs a conversation of the given number of turns, with all answers in the output", async () => {
    const { asked, originalProvider } = target();
    const { output, metadata } = await provider({ turns: 2 }).callApi("It rained.", { originalProvider });
    expect(output).toBe("answer 1\n\nanswer 2");
    expect(asked.map((messages) => messages.map(({ role }) => role).join())).toEqual([
      "user",
      "user,assistant,user",
    ]);
    expect(asked[0]![0]!.content.startsWith("It rained.\n\n")).toBe(true);
    expect(metadata!.messages).toEqual([...asked[1]!, { role: "assistant", content: "answer 2" }]);
    // With a seed the answer is reproducible.
    const again = target();
    await provider({ turns: 2 }).callApi("It rained.", { originalProvider: again.originalProvider });
    expect(again.asked).toEqual(asked);
  });

  it("reports errors of target and server, with the conversation up to there", async () => {
    const callApi = async () => ({ error: "429" });
    const failed = await provider().callApi("Hi.", { originalProvider: { callApi } });
    expect([failed.error, failed.metadata!.messages.length]).toEqual(["429", 1]);
    const unknown = await provider({ model: "other" }).callApi("Hi.", target());
    expect(unknown.error).toContain("astra-rl serve: model: this server has best");
    expect((await provider().callApi("Hi.", {})).error).toContain("there is no target");
  });

  it("refuses configurations with unknown keys, and without a model", () => {
    expect(() => provider({ turn: 2 })).toThrow("config.turn is not known; there are baseURL, model, turns");
    expect(() => new AstraProvider({ config: { baseURL: "x" } })).toThrow("config.model must be a string");
    expect(provider().id()).toBe("astra-rl:best");
  });
});

it("promptfoo's strategy gives the provider to every red-team test, and keeps the rest of it", async () => {
  const config = { baseURL: "http://127.0.0.1:1/v1", model: "best" };
  const tests = [{ vars: { prompt: "a" }, metadata: { pluginId: "x" } }, { vars: { prompt: "b" } }];
  const made = await strategy.action(tests, "prompt", config);
  expect(made).toMatchObject([
    { vars: { prompt: "a" }, metadata: { pluginId: "x", strategyId: "astra-rl" }, provider: { config } },
    { vars: { prompt: "b" }, metadata: { strategyId: "astra-rl" }, provider: { config } },
  ]);
  expect(existsSync(fileURLToPath(made[0]!.provider.id))).toBe(true);
});
