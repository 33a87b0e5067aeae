import { connect, type Socket } from "node:net";
import { request as httpRequest } from "node:http";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { loadCausalLM } from "@astra-rl/lm";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { modelSource } from "@astra-rl/assembly";
import { Reader } from "../src/reader.js";
import { serve } from "../src/index.js";
import { raw, servedModel, useServer } from "./serving.js";

const messages = [{ role: "user", content: "Hello. What is your name?" }];
const signal = new AbortController().signal;
const bytesOf = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));

describe("a server with streams and hostile requests", () => {
  const serving = useServer("chat", (loaded) => [servedModel(loaded, "m", { role: "tester" })]);
  const path = () => `${serving.server.url}/v1/chat/completions`;

  it("keeps 16 streams running despite invalid schemas and texts of megabytes, and reveals no path", async () => {
    const streams = Array.from({ length: 16 }, (_, seed) =>
      raw(path(), {
        body: JSON.stringify({
          model: "m",
          messages,
          max_tokens: 150,
          min_tokens: 150,
          seed,
          stream: true,
        }),
      }),
    );
    await vi.waitFor(() => expect(serving.batch.running).toBe(16), { timeout: 10_000 });
    const schemas = [{ required: 5 }, { properties: null }, { properties: { a: { enum: null } } }];
    const bad = Array.from({ length: 24 }, (_, at) =>
      raw(path(), {
        body: JSON.stringify({
          model: "m",
          messages,
          response_format: {
            type: "json_schema",
            json_schema: { name: "x", schema: schemas[at % schemas.length] },
          },
        }),
      }),
    );
    const long = ["a", "The ticket should be with you soon. ", "안녕하세요 "].map((text) =>
      raw(path(), {
        body: JSON.stringify({
          model: "m",
          messages: [{ role: "user", content: text.repeat(3_000_000 / Buffer.byteLength(text)) }],
        }),
      }),
    );
    const health = await raw(`${serving.server.url}/health`, { method: "GET" });
    expect(health.status).toBe(200);
    for (const { status, text } of await Promise.all([...bad, ...long])) {
      expect(status).toBe(400);
      expect(text).not.toContain(modelSource("embedded:chat"));
    }
    for (const { status, text } of await Promise.all(streams)) {
      expect([status, text.trimEnd().endsWith("data: [DONE]"), text.includes('"error"')]).toEqual([
        200,
        true,
        false,
      ]);
    }
  }, 60_000);

  it("refuses too long texts before encoding them", async () => {
    const ask = async (body: object, endpoint = "chat/completions") => {
      const { status, text } = await raw(`${serving.server.url}/v1/${endpoint}`, {
        body: JSON.stringify(body),
      });
      return [status, (JSON.parse(text) as { error: { code: string; message: string } }).error] as const;
    };
    const { window } = serving.batch;
    const text = "x".repeat(13 * window + 1);
    for (const [body, endpoint] of [
      [{ model: "m", messages: [{ role: "user", content: text }] }, "chat/completions"],
      [{ model: "m", prompt: ["a", text] }, "completions"],
      [{ model: "m", prompt: Array.from({ length: window + 1 }, () => 1) }, "completions"],
    ] as const) {
      const [status, error] = await ask(body, endpoint);
      expect([status, error.code]).toEqual([400, "context_length_exceeded"]);
      expect(error.message).toContain(`window is ${window} tokens of at most 13 bytes`);
    }
  });
});

describe("the threads that parse requests", () => {
  const readerFor = async (window: number, patience?: number) => {
    const { model, tokenizer } = await loadCausalLM(modelSource("embedded:chat"));
    model.dispose();
    const reading = { name: "m", role: "target", date: new Date(0), window } as const;
    const reader = new Reader([{ ...reading, tokenizerFiles: tokenizer.definingFiles }], { patience });
    onTestFinished(() => reader.stop());
    await reader.start();
    return reader;
  };
  const chat = (content: string) => bytesOf({ model: "m", messages: [{ role: "user", content }] });

  it("parse a long text without blocking this thread or short requests", async () => {
    const reader = await readerFor(2 ** 22);
    const delay = monitorEventLoopDelay({ resolution: 5 });
    delay.enable();
    let isDone = false;
    const long = reader
      .read("/v1/chat/completions", chat("The ticket should be with you soon. ".repeat(50_000)), signal)
      .finally(() => (isDone = true));
    const short = await reader.read("/v1/chat/completions", chat("Hello."), signal);
    expect([isDone, short.prompts[0]!.ids.length > 3]).toEqual([false, true]);
    expect((await long).prompts[0]!.ids.length).toBeGreaterThan(400_000);
    expect(delay.max / 1e6).toBeLessThan(200);
  }, 60_000);

  it("abandon a request that takes too long, and answer the next one", async () => {
    const reader = await readerFor(2 ** 22, 3000);
    const text = chat("x1! ".repeat(1_800_000));
    const late = reader.read("/v1/chat/completions", text, signal);
    const next = reader.read("/v1/chat/completions", chat("Hello. ".repeat(10_000)), signal);
    await expect(late).rejects.toMatchObject({ status: 400, message: expect.stringContaining("to read") });
    expect((await next).prompts[0]!.ids.length).toBeGreaterThan(10_000);
  }, 60_000);
});

describe("a server that stops", () => {
  const started = async () => {
    const loaded = await loadCausalLM(modelSource("embedded:chat"));
    const model = servedModel(loaded, "m");
    const server = await serve([model], { port: 0 });
    const { port } = new URL(server.url);
    const sockets: Socket[] = [];
    const open = (text: string) => {
      const socket = connect(Number(port), "127.0.0.1");
      socket.on("error", () => undefined).resume();
      socket.write(text);
      sockets.push(socket);
      return socket;
    };
    onTestFinished(() => {
      sockets.forEach((socket) => socket.destroy());
      model.batch.dispose();
      loaded.model.dispose();
    });
    return { server, open };
  };
  const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

  it("waits for answers, but not for idle connections or partial requests", async () => {
    const { server, open } = await started();
    const half = [
      open(""),
      open("GET /v1/mod"),
      open(head),
      open(`${head}Content-Length: 100\r\n\r\n{"model"`),
    ];
    const closed = half.map((socket) => new Promise((resolve) => socket.once("close", resolve)));
    const body = JSON.stringify({ model: "m", messages, max_tokens: 100, min_tokens: 100, n: 8 });
    const whole = raw(`${server.url}/v1/chat/completions`, { body });
    await vi.waitFor(() => expect(server.open).toBeGreaterThanOrEqual(2), { timeout: 5000 });
    await sleep(50);
    const start = performance.now();
    await server.stop();
    expect((await whole).status).toBe(200);
    await Promise.all(closed);
    expect(performance.now() - start).toBeLessThan(15_000);
  }, 30_000);

  it("gives clients that do not read their answers a few seconds", async () => {
    const { server } = await started();
    const body = JSON.stringify({
      model: "m",
      prompt: Array.from({ length: 256 }, () => "Hi"),
      logprobs: 20,
      max_tokens: 60,
    });
    const sent = httpRequest(`${server.url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
    });
    sent.on("error", () => undefined);
    sent.on("response", (response) => response.pause());
    sent.end(body);
    await vi.waitFor(() => expect(server.open).toBe(1), { timeout: 5000 });
    const start = performance.now();
    await server.stop();
    expect(performance.now() - start).toBeLessThan(25_000);
    sent.destroy();
  }, 60_000);

  it("closes connections whose requests do not arrive in time", async () => {
    const { server, open } = await started();
    const sockets = Array.from({ length: 100 }, () => open("GET /v1/models HTTP/1.1\r\nHost: loc"));
    const told: string[] = [];
    sockets[0]!.on("data", (data: Buffer) => told.push(data.toString()));
    await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once("close", resolve))));
    expect(told.join("")).toContain("408 Request Timeout");
    await server.stop();
  }, 20_000);
});
