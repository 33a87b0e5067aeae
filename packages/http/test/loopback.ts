import {
  createServer,
  type IncomingMessage,
  type Server as HTTPServer,
  type ServerResponse,
} from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { onTestFinished } from "vitest";
import { QUESTIONS } from "../src/probe.js";

/** A request as a test server sees it. */
export interface Asked {
  body: {
    model: string;
    messages?: { role: string; content: string }[];
    prompt?: string;
    seed?: number;
    max_tokens?: number;
    [name: string]: unknown;
  };
  headers: IncomingMessage["headers"];
  url: string;
  /** From 0. */
  call: number;
}

export type Responder = (asked: Asked, response: ServerResponse) => void | Promise<void>;

export interface Loopback {
  baseURL: string;
  /** Requests other than the probe's, in order of arrival. */
  asked: Asked[];
  /** All requests. */
  calls: () => number;
  /** The maximum number of concurrent requests. */
  most: () => number;
  close: () => Promise<void>;
}

export const lastText = ({ body }: Asked): string => body.messages?.at(-1)?.content ?? body.prompt ?? "";
export const isProbe = (asked: Asked): boolean =>
  Object.values(QUESTIONS).some((question) => lastText(asked).startsWith(question));

/** An answer of an OpenAI-compatible server. */
export const completion = ({ body }: Asked, content: unknown, more: Record<string, unknown> = {}) => ({
  id: "1",
  object: "chat.completion",
  model: body.model,
  choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop", ...more }],
  usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
});

/** An answer of Anthropic's messages API. @param content a text, or blocks */
export const anthropicMessage = (
  { body }: Pick<Asked, "body">,
  content: unknown,
  more: Record<string, unknown> = {},
) => ({
  id: "msg_1",
  type: "message",
  role: "assistant",
  model: body.model,
  content: typeof content === "string" ? [{ type: "text", text: content }] : content,
  stop_reason: "end_turn",
  stop_sequence: null,
  usage: { input_tokens: 7, output_tokens: 3 },
  ...more,
});

export function json(response: ServerResponse, status: number, body: unknown, headers = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

/** Answers a probe as a well-behaved server does. */
export const answerProbe: Responder = (asked, response) => {
  if (asked.url.endsWith("/messages")) {
    json(response, 200, anthropicMessage(asked, `one two ${asked.call}`, { stop_reason: "max_tokens" }));
    return;
  }
  const { seed, top_k, temperature, min_tokens = 0, repetition_penalty = 1 } = asked.body;
  const isGreedy = top_k === 1 || temperature === 0;
  const answer = completion(asked, isGreedy ? `one ${String(repetition_penalty)}` : `one two ${seed}`, {
    finish_reason: "length",
  });
  json(response, 200, {
    ...answer,
    usage: { ...answer.usage, completion_tokens: Math.max(3, Number(min_tokens)) },
  });
};

/** A server on the loopback interface, closed after the test. @param port 0 for any that is free */
export async function loopback(
  respond: Responder,
  { probe = answerProbe, port = 0 } = {},
): Promise<Loopback> {
  const asked: Asked[] = [];
  let [calls, open, most] = [0, 0, 0];
  const sockets = new Set<Socket>();
  const server: HTTPServer = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = JSON.parse(Buffer.concat(chunks).toString("utf8")) as Asked["body"];
      const one: Asked = { body, headers: request.headers, url: request.url!, call: calls++ };
      most = Math.max(most, ++open);
      response.on("close", () => open--);
      const isOfProbe = isProbe(one);
      if (!isOfProbe) asked.push(one);
      void (isOfProbe ? probe : respond)(one, response);
    });
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const close = async () => {
    for (const socket of sockets) socket.destroy();
    if (server.listening) await new Promise((resolve) => server.close(resolve));
  };
  onTestFinished(close);
  const { port: bound } = server.address() as AddressInfo;
  return { baseURL: `http://127.0.0.1:${bound}/v1`, asked, calls: () => calls, most: () => most, close };
}

export const wait = (milliseconds: number) =>
  new Promise<void>((resolve) => setTimeout(resolve, milliseconds));
