import type OpenAI from "openai";
import { describe, expect, it } from "vitest";
import { SeededStream } from "../../base/test/support/seeded-stream.js";
import { raw, servedModel, useServer } from "./serving.js";

type Messages = OpenAI.ChatCompletionMessageParam[];
const hello: Messages = [{ role: "user", content: "Hello. What is your name?" }];

describe("the server's answers to a client of OpenAI's API", () => {
  const serving = useServer("chat", (loaded) => [servedModel(loaded, "m")]);
  const chat = (messages: Messages, more: object = {}) =>
    serving.openai.chat.completions.create({ model: "m", messages, max_tokens: 24, temperature: 0, ...more });
  const post = async (body: object, path = "chat/completions") => {
    const { status, text } = await raw(`${serving.server.url}/v1/${path}`, { body: JSON.stringify(body) });
    return { status, body: JSON.parse(text) as Record<string, never> & { error?: Record<string, string> } };
  };
  const streamed = async (more: object, messages = hello) => {
    let text = "";
    const tokens: string[] = [];
    const reasons: (string | null)[] = [];
    const stream = await serving.openai.chat.completions.create({
      model: "m",
      messages,
      max_tokens: 24,
      temperature: 0,
      logprobs: true,
      ...more,
      stream: true,
    });
    for await (const { choices } of stream) {
      text += choices[0]?.delta.content ?? "";
      tokens.push(...(choices[0]?.logprobs?.content ?? []).map(({ token }) => token));
      reasons.push(choices[0]?.finish_reason ?? null);
    }
    return { text, tokens, reason: reasons.at(-1) };
  };

  // ASTRA_STREAMS=200 for the large figure.
  const count = Number(process.env["ASTRA_STREAMS"] ?? 40);

  it("a stream equals the whole answer for any stop strings, and both end at their first character", async () => {
    const random = new SeededStream(7, "stops");
    let cut = 0;
    for (let at = 0; at < count; at += 1) {
      const messages: Messages = [{ role: "user", content: `Hello. I am visitor ${at}. What now?` }];
      const sampling = { temperature: 1, seed: at };
      const plain = (await chat(messages, sampling)).choices[0]!.message.content!;
      const characters = Array.from(plain);
      const part = () => {
        const from = random.integer(characters.length);
        return characters.slice(from, from + 1 + random.integer(3)).join("");
      };
      const stop = characters.length === 0 ? ["e"] : Array.from({ length: 1 + random.integer(3) }, part);
      const ends = stop.map((each) => plain.indexOf(each)).filter((place) => place >= 0);
      const expected = ends.length === 0 ? plain : plain.slice(0, Math.min(...ends));
      const whole = (await chat(messages, { ...sampling, stop, logprobs: true })).choices[0]!;
      const pieces = await streamed({ ...sampling, stop }, messages);
      expect([stop, whole.message.content]).toEqual([stop, expected]);
      expect([stop, pieces]).toEqual([
        stop,
        {
          text: expected,
          tokens: whole.logprobs!.content!.map(({ token }) => token),
          reason: whole.finish_reason,
        },
      ]);
      if (expected !== plain) cut += 1;
    }
    expect(cut).toBeGreaterThan(count / 2);
  }, 120_000);

  it("accepts its answers as history, with all fields that servers add", async () => {
    const said = { role: "assistant", content: "So?" } as const;
    const more: Messages = [{ role: "user", content: "Yes." }];
    const plain = await chat([...hello, said, ...more]);
    const answered = {
      ...said,
      refusal: null,
      annotations: [],
      audio: null,
      function_call: null,
      tool_calls: null,
      reasoning_content: "Hm.",
      reasoning: null,
      type: "text",
      name: null,
      unknown_to_all: null,
    } as unknown as OpenAI.ChatCompletionAssistantMessageParam;
    expect((await chat([...hello, answered, ...more])).choices[0]!.message).toEqual(
      plain.choices[0]!.message,
    );
    const refused = { role: "assistant", content: null, refusal: "So?" } as const;
    expect((await chat([...hello, refused, ...more])).choices[0]!.message).toEqual(plain.choices[0]!.message);
    for (const key of ["audio", "function_call"]) {
      const { status, body } = await post({
        model: "m",
        messages: [...hello, { ...said, [key]: { id: "x" } }, ...more],
      });
      expect([status, body.error!["param"]]).toEqual([400, `messages[1].${key}`]);
    }
  });

  it.each([
    [
      { messages: [{ role: "user", content: null }] },
      "messages[0].content",
      "must be a string or parts of text",
    ],
    [{ tools: [{ type: "function" }] }, "tools", "must be empty: tools are not supported by this server"],
    [{ stream_options: { include_usage: true } }, "stream_options", "needs stream: true"],
    [{ seed: 1.5 }, "seed", "must be a whole number of at most 64 bits"],
    [{ stop: "\ud83d" }, "stop", "must be valid text, without lone surrogates"],
    [{ model: undefined }, "model", "is required; this server has m"],
    [{ model: [["m"]] }, "model", "must be a string; this server has m"],
    [
      { messages: Array.from({ length: 1025 }, () => ({ role: "user", content: "" })) },
      "messages",
      "must be at most 1024 messages",
    ],
  ])("refuses invalid values with key and rule: %#", async (more, param, rule) => {
    const { status, body } = await post({ model: "m", messages: hello, ...more });
    expect([status, body.error!["param"], body.error!["message"]]).toEqual([400, param, `${param}: ${rule}`]);
  });

  it("accepts distinct 64-bit seeds, and model names of any length", async () => {
    const text = async (seed: string) => {
      const body = `{"model":"m","messages":${JSON.stringify(hello)},"temperature":1.5,"max_tokens":12,"seed":${seed}}`;
      const { status, text: told } = await raw(`${serving.server.url}/v1/chat/completions`, { body });
      expect(status).toBe(200);
      return (JSON.parse(told) as OpenAI.ChatCompletion).choices[0]!.message.content;
    };
    const [a, again, b] = [
      await text("9223372036854775807"),
      await text("9223372036854775807"),
      await text("4611686018427387904"),
    ];
    expect(again).toBe(a);
    expect(b).not.toBe(a);
    const deep = `{"model":${"[".repeat(100_000)}${"]".repeat(100_000)},"messages":[]}`;
    expect((await raw(`${serving.server.url}/v1/chat/completions`, { body: deep })).status).toBe(400);
  });

  it("answers HEAD like GET, and invalidly encoded names with 404", async () => {
    const { url } = serving.server;
    const ask = async (method: string, path: string) => {
      const { status, text } = await raw(`${url}${path}`, { method });
      return [status, text === ""];
    };
    expect(await ask("HEAD", "/v1/models")).toEqual([200, true]);
    expect(await ask("HEAD", "/health")).toEqual([200, true]);
    for (const name of ["%ZZ", "%ff", "%E0%A4%A", "x"]) {
      expect(await ask("GET", `/v1/models/${name}`)).toEqual([404, false]);
    }
    expect(await ask("GET", "/v1/models/m")).toEqual([200, false]);
  });

  it("returns the ids that it read with the choices, in streams with the first chunk", async () => {
    const body = { model: "m", messages: hello, max_tokens: 3, temperature: 0, return_token_ids: true };
    const whole = (await post(body)).body as unknown as { prompt_token_ids: number[]; choices: object[] };
    expect(whole.prompt_token_ids.length).toBeGreaterThan(5);
    expect(Object.keys(whole.choices[0]!)).not.toContain("prompt_token_ids");
    const chunks = async (path: string, given: object) => {
      const { text } = await raw(`${serving.server.url}/v1/${path}`, {
        body: JSON.stringify({ ...given, stream: true }),
      });
      const events = text.split("\n\n").filter((event) => event.startsWith("data: {"));
      return events.map((event) => JSON.parse(event.slice(6)) as Record<string, unknown>);
    };
    const told = await chunks("chat/completions", body);
    expect(told.map((chunk) => chunk["prompt_token_ids"])).toEqual([
      whole.prompt_token_ids,
      ...Array.from({ length: told.length - 1 }, () => undefined),
    ]);
    const prompt = [5, 6, 7];
    const parts = await chunks("completions", {
      model: "m",
      prompt,
      max_tokens: 3,
      temperature: 0,
      return_token_ids: true,
    });
    const choices = parts.map(
      ({ choices: list }) => (list as { prompt_token_ids?: number[]; token_ids: number[] }[])[0]!,
    );
    expect(choices[0]!.prompt_token_ids).toEqual(prompt);
    expect(choices.slice(1).every((each) => each.prompt_token_ids === undefined)).toBe(true);
    expect(choices.flatMap(({ token_ids: ids }) => ids).length).toBe(3);
  });

  it("returns token offsets in characters, also if characters are split over tokens", async () => {
    const prompt = "안녕하세요 😀 여러분, 今天";
    const answer = await serving.openai.completions.create({
      model: "m",
      prompt,
      max_tokens: 4,
      temperature: 0,
      logprobs: 2,
      echo: true,
    });
    const [{ text, logprobs }] = answer.choices as [(typeof answer.choices)[0]];
    const ids = serving.loaded.tokenizer.encode(prompt);
    expect(ids.length).toBeGreaterThan(Array.from(prompt).length);
    const { text_offset: offsets, tokens, top_logprobs: top, token_logprobs: values } = logprobs!;
    // By hand: each character takes as many tokens as the tokenizer gives it, and all begin where it begins.
    const { tokenizer } = serving.loaded;
    let at = 0;
    const expected = ids.map((_, index) => {
      const before = tokenizer.decode(ids.slice(0, index), { skipSpecialTokens: false });
      if (!before.endsWith("\uFFFD")) at = Array.from(before).length;
      return at;
    });
    expect(offsets!.slice(0, ids.length)).toEqual(expected);
    expect(offsets![ids.length]).toBe(Array.from(prompt).length);
    expect(text.startsWith(prompt)).toBe(true);
    expect(offsets!.at(-1)).toBeLessThanOrEqual(Array.from(text).length);
    // A part of a character is returned as its bytes, so that different ones are distinct.
    const spelled = tokens!.slice(0, ids.length).map((token) => {
      const hex = /^bytes:((?:\\x[0-9a-f]{2})+)$/u.exec(token)?.[1];
      return hex === undefined ? Buffer.from(token) : Buffer.from(hex.replaceAll("\\x", ""), "hex");
    });
    expect(Buffer.concat(spelled).toString()).toBe(prompt);
    top!.slice(1).forEach((likely, place) => {
      expect(likely[tokens![place + 1]!]).toBe(values![place + 1]);
      expect(Object.keys(likely).length).toBeGreaterThanOrEqual(2);
    });
  });

  it("accepts only plain JSON, and no requests from pages of other sites", async () => {
    const body = JSON.stringify({ model: "m", messages: hello, max_tokens: 1 });
    const json = { "content-type": "application/json" };
    const { url } = serving.server;
    const post1 = async (headers: object) =>
      (await raw(`${url}/v1/chat/completions`, { body, headers: headers as Record<string, string> })).status;
    expect(await post1({ ...json })).toBe(200);
    expect(await post1({ "content-type": "Application/JSON; charset=utf-8" })).toBe(200);
    expect(await post1({ ...json, origin: url })).toBe(200);
    for (const headers of [
      {},
      { "content-type": "text/plain" },
      { "content-type": "application/x-www-form-urlencoded" },
    ]) {
      expect([headers, await post1(headers)]).toEqual([headers, 415]);
    }
    expect(await post1({ ...json, "content-encoding": "gzip" })).toBe(415);
    for (const headers of [
      { origin: "https://evil.example" },
      { origin: "null" },
      { "sec-fetch-site": "cross-site" },
      { host: "evil.example" },
    ]) {
      expect([headers, await post1({ ...json, ...headers })]).toEqual([headers, 403]);
    }
    const get = await raw(`${url}/v1/models`, { method: "GET", headers: { origin: "https://evil.example" } });
    expect(get.status).toBe(403);
  });
});

describe("a tester's server with a JSON response format", () => {
  const serving = useServer("chat", (loaded) => [servedModel(loaded, "m", { role: "tester" })]);
  const ask = async (schema: unknown) => {
    const whole = JSON.stringify({
      model: "m",
      messages: hello,
      max_tokens: 8,
      temperature: 0,
      response_format: { type: "json_schema", json_schema: { name: "x", schema } },
    });
    const body = whole.replace('"DEEP"', DEEP);
    const { status, text } = await raw(`${serving.server.url}/v1/chat/completions`, { body });
    return { status, body: JSON.parse(text) as OpenAI.ChatCompletion & { error?: { param: string } } };
  };
  const text = { type: "string" };
  const DEEP = `${'{"properties":{"x":'.repeat(10_000)}true${'},"required":["x"]}'.repeat(10_000)}`;

  it.each([
    [{ type: "object", properties: { a: text }, required: 5 }, ".required"],
    [{ type: "object", properties: null }, ".properties"],
    [{ type: "object", properties: { a: text, k: { enum: null } }, required: ["k"] }, ".properties.k.enum"],
    [{ type: "object", properties: { a: text, k: 7 } }, ".properties.k"],
    [{ type: "object", properties: { a: text }, required: [1] }, ".required"],
    [{ type: 3 }, ".type"],
    [{ type: "object", properties: { a: { $ref: "#/$defs/none" } } }, ""],
    [{ $ref: "#" }, ""],
    [{ type: "object", properties: { a: { type: "string", minLength: 1e9 } }, required: ["a", "b"] }, null],
    [
      {
        type: "object",
        properties: { a: text, b: { type: "array", minItems: 1e9, items: text } },
        required: ["b"],
      },
      "",
    ],
    ["DEEP", ""],
    [{ type: "object", properties: { a: text, b: { default: "DEEP" } } }, ""],
  ])("refuses an invalid schema before generating: %#", async (schema, place) => {
    const before = serving.batch.work.tokensRead;
    const { status, body } = await ask(schema);
    if (place === null) return expect(status).toBe(200);
    expect([status, body.error?.param]).toEqual([400, `response_format.json_schema.schema${place}`]);
    expect(serving.batch.work.tokensRead).toBe(before);
  });

  it("fills required values with the smallest allowed ones, including references and choices", async () => {
    const { status, body } = await ask({
      type: "object",
      $defs: {
        tag: { type: "object", properties: { id: { type: "integer", minimum: 3 } }, required: ["id"] },
      },
      properties: {
        message: text,
        score: { type: "number", minimum: 1, maximum: 10 },
        above: { type: "number", exclusiveMinimum: 0, exclusiveMaximum: 1 },
        count: { type: "integer", exclusiveMinimum: 0 },
        below: { type: "integer", maximum: -2 },
        reason: { type: "string", minLength: 4 },
        tags: { type: "array", minItems: 2, items: { $ref: "#/$defs/tag" } },
        maybe: { anyOf: [{ type: "string", minLength: 1 }, { type: "null" }] },
        both: { allOf: [{ $ref: "#/$defs/tag" }, { properties: { ok: { const: true } }, required: ["ok"] }] },
      },
      required: ["message", "score", "above", "count", "below", "reason", "tags", "maybe", "both"],
    });
    expect(status).toBe(200);
    expect(JSON.parse(body.choices[0]!.message.content!)).toEqual({
      message: expect.any(String),
      score: 1,
      above: 0.5,
      count: 1,
      below: -2,
      reason: "----",
      tags: [{ id: 3 }, { id: 3 }],
      maybe: "-",
      both: { id: 3, ok: true },
    });
  });
});

describe("a server with a token", () => {
  const serving = useServer("chat", (loaded) => [servedModel(loaded, "m")], { token: "Secret" });

  it("accepts the scheme in any case, and names the one it requires", async () => {
    const get = (authorization: string) =>
      raw(`${serving.server.url}/v1/models`, { method: "GET", headers: { authorization } });
    for (const scheme of ["Bearer", "bearer", "BEARER"]) {
      expect((await get(`${scheme} Secret`)).status).toBe(200);
    }
    for (const other of ["Bearer secret", "Basic Secret", "Bearer  Secret x", "Secret"]) {
      const { status, headers } = await get(other);
      expect([other, status, headers["www-authenticate"]]).toEqual([other, 401, "Bearer"]);
    }
  });
});
