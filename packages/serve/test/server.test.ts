import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { generate, tokenLogprobs } from "@astra-rl/lm";
import { noGrad } from "@astra-rl/torch";
import { describe, expect, it, vi } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { SeededStream } from "../../base/test/support/seeded-stream.js";
import { serve } from "../src/index.js";
import { raw, servedModel, useServer } from "./serving.js";

type Messages = { role: "system" | "user" | "assistant"; content: string }[];
const hello: Messages = [{ role: "user", content: "Hello. What is your name?" }];

describe("a server of a chat model", () => {
  const serving = useServer("chat", (loaded) => [servedModel(loaded, "m")]);
  const chat = (messages: Messages, more: object = {}) =>
    serving.openai.chat.completions.create({ model: "m", messages, max_tokens: 12, temperature: 0, ...more });

  it("answers as the engine does, with ids, log-probabilities and usage", async () => {
    const { model, tokenizer } = serving.loaded;
    const answer = await chat(hello, { logprobs: true, top_logprobs: 3, return_token_ids: true });
    const choice = answer.choices[0]! as (typeof answer.choices)[0] & { token_ids: number[] };
    const { prompt_token_ids: prompt } = answer as typeof answer & { prompt_token_ids: number[] };
    const [row] = generate(model, tokenizer, [prompt], {
      maxNewTokens: 12,
      greedy: true,
    }).ids;
    const ends = choice.finish_reason === "stop";
    expect(choice.token_ids).toEqual(row);
    expect(choice.message.content).toBe(tokenizer.decode(row!, { skipSpecialTokens: true }));
    expect(choice.logprobs!.content!.length).toBe(row!.length);
    for (const { logprob, top_logprobs: top } of choice.logprobs!.content!) {
      expect(top.length).toBe(3);
      expect(top[0]!.logprob).toBe(logprob);
    }
    expect(ends).toBe(row!.length < 12 || model.config.eosIds.includes(row!.at(-1)!));
    // No count of cached tokens: they may be another client's.
    expect(answer.usage).toEqual({
      prompt_tokens: prompt.length,
      completion_tokens: row!.length,
      total_tokens: prompt.length + row!.length,
    });
  });

  it("streams the same text, log-probabilities and ids, in pieces", async () => {
    const whole = await chat(hello, { logprobs: true, return_token_ids: true });
    const stream = await serving.openai.chat.completions.create({
      model: "m",
      messages: hello,
      max_tokens: 12,
      temperature: 0,
      logprobs: true,
      stream: true,
      stream_options: { include_usage: true },
    });
    const [texts, tokens, reasons] = [[] as string[], [] as string[], [] as string[]];
    let usage: unknown;
    for await (const chunk of stream) {
      usage = chunk.usage ?? usage;
      for (const { delta, logprobs, finish_reason: reason } of chunk.choices) {
        texts.push(delta.content ?? "");
        tokens.push(...(logprobs?.content ?? []).map(({ token }) => token));
        if (reason !== null) reasons.push(reason);
      }
    }
    expect(texts.filter((text) => text !== "").length).toBeGreaterThan(2);
    expect(texts.join("")).toBe(whole.choices[0]!.message.content);
    expect(tokens).toEqual(whole.choices[0]!.logprobs!.content!.map(({ token }) => token));
    expect(reasons).toEqual([whole.choices[0]!.finish_reason]);
    expect(usage).toMatchObject({ completion_tokens: whole.usage!.completion_tokens });
  });

  it("is reproducible with a seed only; n sequences differ", async () => {
    const texts = async (more: object) =>
      (await chat(hello, { temperature: 1.2, n: 4, ...more })).choices.map(({ message }) => message.content);
    const [a, b, other] = [await texts({ seed: 7 }), await texts({ seed: 7 }), await texts({ seed: 8 })];
    expect(a).toEqual(b);
    expect(other).not.toEqual(a);
    expect(new Set(a).size).toBeGreaterThan(1);
    expect(await texts({})).not.toEqual(await texts({}));
  });

  it("ends before stop strings, also in streams", async () => {
    const { content } = (await chat(hello)).choices[0]!.message;
    const stop = content!.slice(3, 6);
    const stopped = await chat(hello, { stop: [stop] });
    expect(stopped.choices[0]!.finish_reason).toBe("stop");
    expect(content!.startsWith(stopped.choices[0]!.message.content!)).toBe(true);
    expect(stopped.choices[0]!.message.content).not.toContain(stop);
    let streamed = "";
    const stream = await serving.openai.chat.completions.create({
      model: "m",
      messages: hello,
      max_tokens: 12,
      temperature: 0,
      stop,
      stream: true,
    });
    for await (const { choices } of stream) streamed += choices[0]?.delta.content ?? "";
    expect(streamed).toBe(stopped.choices[0]!.message.content);
  });

  it("returns the log-probabilities of echoed texts, as lm-eval and likelihood models request them", async () => {
    const { model, tokenizer } = serving.loaded;
    const ids = tokenizer.encode("Hello. What is your name?");
    const answer = await serving.openai.completions.create({
      model: "m",
      prompt: [ids, ids.slice(0, 4)],
      max_tokens: 1,
      temperature: 0,
      logprobs: 2,
      echo: true,
    });
    const only = await serving.openai.completions.create({
      model: "m",
      prompt: ids,
      max_tokens: 0,
      logprobs: 0,
      echo: true,
    });
    const [first, second] = answer.choices as [(typeof answer.choices)[0], (typeof answer.choices)[0]];
    expect(first.logprobs!.tokens!.length).toBe(ids.length + 1);
    expect(second.logprobs!.tokens!.length).toBe(5);
    expect(first.text.startsWith("Hello. What is your name?")).toBe(true);
    expect(first.logprobs!.token_logprobs![0]).toBeNull();
    const items = [{ context: ids.slice(0, 1), continuation: ids.slice(1) }];
    const table = noGrad(() => tokenLogprobs(model, items));
    const expected = Array.from(table.toTypedArray(), Number);
    table.dispose();
    first
      .logprobs!.token_logprobs!.slice(1, -1)
      .forEach((value, at) => expect(value).toBeCloseTo(expected[at]!, 4));
    expect(only.choices[0]!.logprobs!.token_logprobs!.length).toBe(ids.length);
    const { tokens, token_logprobs: values, top_logprobs: top } = only.choices[0]!.logprobs!;
    expect(top![0]).toBeNull();
    expect(top![2]).toEqual({ [tokens![2]!]: values![2] });
    expect(only.usage!.completion_tokens).toBe(0);
  });

  it("returns the offset of each token of a streamed completion", async () => {
    const asked = { model: "m", prompt: "Hello.", max_tokens: 8, temperature: 0, logprobs: 0 } as const;
    const whole = await serving.openai.completions.create(asked);
    const offsets: number[] = [];
    for await (const { choices } of await serving.openai.completions.create({ ...asked, stream: true })) {
      offsets.push(...(choices[0]?.logprobs?.text_offset ?? []));
    }
    expect(offsets).toEqual(whole.choices[0]!.logprobs!.text_offset);
    expect(offsets.at(-1)).toBeGreaterThan(0);
  });

  it("32 concurrent streams equal single ones, and share common prefixes", async () => {
    const prompts = Array.from(
      { length: 32 },
      (_, at) => `Hello. I am visitor ${at % 8}. What is your name?`,
    );
    const alone = new Map<string, string>();
    for (const prompt of new Set(prompts)) {
      const answer = await chat([{ role: "user", content: prompt }]);
      alone.set(prompt, answer.choices[0]!.message.content!);
    }
    const reused = serving.batch.tokensReused;
    const texts = await Promise.all(
      prompts.map(async (prompt) => {
        let text = "";
        const stream = await serving.openai.chat.completions.create({
          model: "m",
          messages: [{ role: "user", content: prompt }],
          max_tokens: 12,
          temperature: 0,
          stream: true,
        });
        for await (const { choices } of stream) text += choices[0]?.delta.content ?? "";
        return text;
      }),
    );
    expect(texts).toEqual(prompts.map((prompt) => alone.get(prompt)));
    expect(serving.batch.tokensReused).toBeGreaterThan(reused + 32 * 4);
  });

  it("a client that disconnects frees its row immediately", async () => {
    const abort = new AbortController();
    const started = serving.openai.chat.completions.create(
      { model: "m", messages: hello, max_tokens: 100, n: 3, temperature: 1, stream: true, logit_bias: {} },
      { signal: abort.signal },
    );
    const stream = await started;
    for await (const chunk of stream) {
      expect(chunk.model).toBe("m");
      break;
    }
    abort.abort();
    await vi.waitFor(() =>
      expect([serving.batch.running, serving.batch.waiting, serving.server.open]).toEqual([0, 0, 0]),
    );
  });

  it.each([
    [{ temperature: 3e9 }, "temperature"],
    [{ n: 0 }, "n"],
    [{ stop: [""] }, "stop"],
    [{ frequency_penalty: 0.5 }, "frequency_penalty"],
    [{ response_format: { type: "json_object" } }, "response_format"],
    [{ tools: [{ type: "function" }] }, "tools"],
    [{ wibble: 1 }, "wibble"],
    [{ top_logprobs: 3 }, "top_logprobs"],
    [{ messages: [] }, "messages"],
    [{ messages: [{ role: "tool", content: "x" }] }, "messages"],
    [{ messages: [...hello, { role: "assistant", content: "x" }] }, "messages"],
    [{ max_tokens: 100_000 }, "messages"],
  ])("refuses %j with status 400 and the key", async (more, param) => {
    const body = JSON.stringify({ model: "m", messages: hello, ...more });
    const { status, text } = await raw(`${serving.server.url}/v1/chat/completions`, { body });
    expect(status).toBe(400);
    const { error } = JSON.parse(text) as { error: { message: string; type: string; param: string } };
    expect(error.type).toBe("invalid_request_error");
    expect(error.param.startsWith(param)).toBe(true);
    expect(error.message.length).toBeGreaterThan(10);
  });

  it("2,000 malformed requests get the API's error format, and leak nothing", async () => {
    const stream = new SeededStream(3, "malformed");
    const pick = <T>(items: readonly T[]) => items[stream.integer(items.length)]!;
    const junk = [
      null,
      true,
      -1,
      1e308,
      "",
      "x",
      [],
      {},
      [[]],
      [{}],
      "\u0000",
      "😀",
      { $ref: "#" },
      [null],
      "a".repeat(300),
    ];
    const valid = { model: "m", messages: hello, max_tokens: 1, temperature: 0 };
    const { url } = serving.server;
    const keys = [
      "model",
      "messages",
      "max_tokens",
      "temperature",
      "n",
      "stop",
      "seed",
      "stream",
      "logprobs",
      "top_p",
      "user",
    ];
    let ok = 0;
    for (let at = 0; at < 2000; at += 50) {
      const answers = await Promise.all(
        Array.from({ length: 50 }, () => {
          const whole = JSON.stringify({ ...valid, [pick(keys)]: pick(junk), [pick(keys)]: pick(junk) });
          const kind = stream.integer(6);
          if (kind === 0)
            return raw(
              `${url}${pick(["/", "/v1", "/v2/chat", "/v1/embeddings", "/%00", "/v1/models/x", "/v1/models/%E0%A4%A"])}`,
              { body: whole },
            );
          if (kind === 1)
            return raw(`${url}/v1/chat/completions`, { method: pick(["GET", "PUT", "DELETE", "PATCH"]) });
          if (kind === 2)
            return raw(`${url}/v1/completions`, {
              body: JSON.stringify({ model: "m", prompt: pick(junk), max_tokens: pick(junk) }),
            });
          const cut = kind === 3 ? whole.slice(0, stream.integer(whole.length)) : whole;
          const body =
            kind === 4
              ? Buffer.from(whole).map((byte) => (stream.integer(20) === 0 ? stream.integer(256) : byte))
              : cut;
          return raw(`${url}/v1/chat/completions`, { body: body as Buffer });
        }),
      );
      for (const { status, text } of answers) {
        if (status === 200) {
          ok += 1;
          continue;
        }
        expect(status).toBeLessThan(500);
        const { error } = JSON.parse(text) as { error: object };
        expect(Object.keys(error)).toEqual(["message", "type", "param", "code"]);
      }
    }
    // Some junk happens to be valid.
    expect(ok).toBeLessThan(400);
    await vi.waitFor(() =>
      expect([serving.batch.running, serving.batch.waiting, serving.server.open]).toEqual([0, 0, 0]),
    );
    expect((await chat(hello)).choices.length).toBe(1);
  });

  it("invalid HTTP gets the error format and is disconnected", async () => {
    const socket = connect(Number(new URL(serving.server.url).port), "127.0.0.1");
    const parts: Buffer[] = [];
    socket.on("data", (part: Buffer) => parts.push(part));
    socket.write("HELLO\r\n\r\n");
    await new Promise((resolve) => socket.on("close", resolve));
    const [head, body] = Buffer.concat(parts).toString().split("\r\n\r\n") as [string, string];
    expect(head).toContain("400 Bad Request");
    expect((JSON.parse(body) as { error: { message: string } }).error.message).toBe(
      "the request is not valid HTTP",
    );
  });

  it("refuses other hosts' names, unknown models, and bodies that are too large", async () => {
    const { url } = serving.server;
    expect((await raw(`${url}/v1/models`, { method: "GET", headers: { host: "evil.example" } })).status).toBe(
      403,
    );
    const body = JSON.stringify({ model: "gpt-9", messages: hello });
    const unknown = await raw(`${url}/v1/chat/completions`, { body });
    expect([unknown.status, unknown.text]).toEqual([404, expect.stringContaining("this server has m, not")]);
    const large = await raw(`${url}/v1/chat/completions`, { body: Buffer.alloc(9 * 2 ** 20, 32) });
    expect(large.status).toBe(413);
  });

  it("lists its models, and reports its state and metrics", async () => {
    const { data } = await serving.openai.models.list();
    expect(data).toEqual([
      expect.objectContaining({ id: "m", object: "model", max_model_len: serving.batch.window }),
    ]);
    expect((await serving.openai.models.retrieve("m")).id).toBe("m");
    const { url } = serving.server;
    expect(JSON.parse((await raw(`${url}/health`, { method: "GET" })).text)).toEqual({
      status: "ok",
      running: 0,
      waiting: 0,
    });
    const { text } = await raw(`${url}/metrics`, { method: "GET" });
    const value = (name: string) => Number(new RegExp(`^${name} (.+)$`, "mu").exec(text)![1]);
    expect(value("astra_prompt_tokens_total")).toBe(serving.batch.work.tokensRead);
    expect(value("astra_generated_tokens_total")).toBe(serving.batch.work.tokensGenerated);
    expect(text).toMatch(/astra_requests_total\{endpoint="\/v1\/chat\/completions",status="200"\} \d+/u);
    expect(value("astra_request_seconds_count")).toBeGreaterThan(10);
  });
});

describe("a busy server", () => {
  const serving = useServer("chat", (loaded) => [servedModel(loaded, "m", { rows: 1 })], { queue: 2 });

  it("rejects excess requests with a Retry-After, and finishes accepted ones before it stops", async () => {
    const body = (n: number) =>
      JSON.stringify({ model: "m", messages: hello, max_tokens: 60, n, min_tokens: 60, seed: 1 });
    const { url } = serving.server;
    const running = raw(`${url}/v1/chat/completions`, { body: body(30) });
    await vi.waitFor(() => expect(serving.batch.running).toBe(1), { interval: 1 });
    const late = await raw(`${url}/v1/chat/completions`, { body: body(2) });
    expect(late.status).toBe(429);
    expect(Number(late.headers["retry-after"])).toBeGreaterThanOrEqual(1);
    expect((JSON.parse(late.text) as { error: { type: string } }).error.type).toBe("rate_limit_error");
    const stopped = serving.server.stop();
    await sleep(0);
    const { status, text } = await running;
    expect([status, (JSON.parse(text) as { choices: object[] }).choices.length]).toEqual([200, 30]);
    await stopped;
    await expect(raw(`${url}/health`, { method: "GET" })).rejects.toThrow(/ECONNREFUSED|hang up/u);
  });
});

describe("a server with a token", () => {
  const serving = useServer("chat", (loaded) => [servedModel(loaded, "m")], { token: "secret-token" });

  it("requires it everywhere but at /health", async () => {
    const { url } = serving.server;
    const get = (path: string, authorization?: string) =>
      raw(`${url}${path}`, { method: "GET", headers: authorization === undefined ? {} : { authorization } });
    expect((await get("/v1/models")).status).toBe(401);
    expect((await get("/v1/models", "Bearer secret-toke")).status).toBe(401);
    expect((await get("/v1/models", "Bearer secret-token")).status).toBe(200);
    expect((await get("/metrics")).status).toBe(401);
    expect((await get("/health")).status).toBe(200);
    expect((await serving.openai.models.list()).data.length).toBe(1);
  });

  it("is required on public addresses, and a used port is named", async () => {
    const model = servedModel(serving.loaded, "m");
    await expect(serve([model], { host: "0.0.0.0", port: 0 })).rejects.toThrow(
      breaking("token-required", "--token-env"),
    );
    const port = Number(new URL(serving.server.url).port);
    await expect(serve([model], { port })).rejects.toThrow(breaking("cannot-listen"));
    model.batch.dispose();
  });
});

describe("a server of a tester", () => {
  const serving = useServer("chat", (loaded) => [
    servedModel(loaded, "m", { role: "tester" }),
    servedModel(loaded, "theirs", { role: "tester", system: "theirs" }),
    servedModel(loaded, "told", {
      role: "tester",
      prompts: ["Hi there.", "It rained."],
      jsonField: "question",
    }),
  ]);
  const ask = async (model: string, messages: Messages, more: object = {}) => {
    const answer = await serving.openai.chat.completions.create({
      model,
      messages,
      max_tokens: 12,
      temperature: 0,
      ...more,
    } as Parameters<typeof serving.openai.chat.completions.create>[0] & { stream?: false });
    const [choice] = answer.choices as unknown as [{ message: { content: string } }];
    return { ...choice, ids: (answer as { prompt_token_ids?: number[] }).prompt_token_ids };
  };
  const text = async (...given: Parameters<typeof ask>) => (await ask(...given)).message.content;
  const idsOf = async (...[model, messages]: Parameters<typeof ask>) =>
    (await ask(model, messages, { return_token_ids: true })).ids!;

  const system = { role: "system", content: "You are a poet." } as const;

  it("reads its own system prompt, or the request's, and never both", async () => {
    expect(await idsOf("m", [system, ...hello])).toEqual(await idsOf("m", hello));
    expect(await idsOf("theirs", [system, ...hello])).not.toEqual(await idsOf("theirs", hello));
    expect(await idsOf("theirs", hello)).toEqual(await idsOf("m", hello));
  });

  it("starts from a prompt if the first user message is empty or an instruction, and keeps it", async () => {
    const instruction: Messages = [{ role: "user", content: "Generate your first message to achieve: harm" }];
    const first = await idsOf("told", instruction);
    const own = await Promise.all(
      ["Hi there.", "It rained."].map((content) => idsOf("m", [{ role: "user", content }])),
    );
    expect(own).toContainEqual(first);
    const later = await idsOf("told", [
      ...instruction,
      { role: "assistant", content: "So?" },
      { role: "user", content: "No." },
    ]);
    expect(later.slice(0, first.length)).toEqual(first);
    expect((await ask("m", [{ role: "user", content: "" }])).message.content.length).toBeGreaterThan(0);
  });

  it.each([
    [
      "PyRIT",
      ["next_message", "rationale", "last_response_summary"],
      "next_message",
      { rationale: "", last_response_summary: "" },
    ],
    ["TAP", ["improvement", "prompt"], "prompt", { improvement: "" }],
  ])("fills the JSON that %s requests with its message", async (_, keys, field, rest) => {
    const properties = Object.fromEntries(keys.map((key) => [key, { type: "string" }]));
    const schema = { type: "object", properties, required: keys, additionalProperties: false };
    const format = { type: "json_schema", json_schema: { name: "attack", strict: true, schema } };
    const plain = await text("m", hello);
    expect(JSON.parse(await text("m", hello, { response_format: format }))).toEqual({
      [field]: plain.trim(),
      ...rest,
    });
    let streamed = "";
    const stream = await serving.openai.chat.completions.create({
      model: "m",
      messages: hello,
      max_tokens: 12,
      temperature: 0,
      response_format: format as { type: "json_schema"; json_schema: { name: string } },
      stream: true,
    });
    for await (const { choices } of stream) streamed += choices[0]?.delta.content ?? "";
    expect(JSON.parse(streamed)).toEqual({ [field]: plain.trim(), ...rest });
  });

  it("fills other required values with empty ones, and uses the configured key", async () => {
    const schema = {
      type: "object",
      properties: {
        score: { type: "integer" },
        question: { type: "string" },
        done: { type: "boolean" },
        kind: { enum: ["a", "b"] },
        notes: { type: "array" },
        inner: { type: "object", properties: { x: { type: "string" } }, required: ["x"] },
      },
      required: ["score", "question", "done", "kind", "notes", "inner"],
    };
    const format = { type: "json_schema", json_schema: { name: "x", schema } };
    expect(JSON.parse(await text("told", hello, { response_format: format }))).toEqual({
      question: expect.any(String),
      score: 0,
      done: false,
      kind: "a",
      notes: [],
      inner: { x: "" },
    });
    const object = JSON.parse(await text("m", hello, { response_format: { type: "json_object" } })) as object;
    expect(Object.keys(object)).toEqual(["next_message"]);
  });
});
