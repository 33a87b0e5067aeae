/** A server with an embedded model for the tests of a file. */
import { request as httpRequest, type IncomingMessage } from "node:http";
import { Codec, ContinuousBatch, loadCausalLM, type LoadedCausalLM } from "@astra-rl/lm";
import { liveTensors } from "@astra-rl/torch";
import OpenAI from "openai";
import { afterAll, beforeAll, expect } from "vitest";
import { modelSource } from "@astra-rl/assembly";
import { serve, type RunningServer, type ServedModel, type ServeOptions } from "../src/index.js";

const DATE = new Date("2026-01-02T00:00:00Z");

export interface Serving {
  loaded: LoadedCausalLM;
  server: RunningServer;
  batch: ContinuousBatch;
  openai: OpenAI;
}

/** The parts of a raw answer that tests use. */
export interface Answer {
  status: number;
  headers: IncomingMessage["headers"];
  text: string;
}

export function servedModel(
  { model, tokenizer }: LoadedCausalLM,
  name: string,
  {
    rows = 16,
    cacheBytes = 2 ** 30,
    ...more
  }: Partial<Omit<ServedModel, "name" | "batch" | "tokenizer">> & { rows?: number; cacheBytes?: number } = {},
): ServedModel {
  const batch = new ContinuousBatch(model, Codec.of(tokenizer), { rows, cacheBytes });
  return { name, role: "target", date: DATE, batch, tokenizer, ...more };
}

/** Serves an embedded model under the name "m". */
export function useServer(
  embedded: string,
  make: (loaded: LoadedCausalLM) => ServedModel[],
  options: ServeOptions = {},
): Serving {
  const serving = {} as Serving;
  let before = 0;
  let models: ServedModel[] = [];
  beforeAll(async () => {
    before = liveTensors();
    serving.loaded = await loadCausalLM(modelSource(`embedded:${embedded}`));
    models = make(serving.loaded);
    serving.batch = models[0]!.batch;
    serving.server = await serve(models, { port: 0, ...options });
    serving.openai = new OpenAI({
      baseURL: `${serving.server.url}/v1`,
      apiKey: options.token ?? "none",
      maxRetries: 0,
    });
  });
  afterAll(async () => {
    await serving.server.stop();
    expect(models.every(({ batch }) => batch.running + batch.waiting === 0)).toBe(true);
    for (const { batch } of models) batch.dispose();
    serving.loaded.model.dispose();
    expect(liveTensors()).toBe(before);
  });
  return serving;
}

/** Sends a raw request. */
export function raw(
  url: string,
  {
    method = "POST",
    body = "",
    headers = { "content-type": "application/json" },
  }: { method?: string; body?: string | Buffer; headers?: Record<string, string> } = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(url, { method, headers }, (response) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("end", () =>
        resolve({
          status: response.statusCode!,
          headers: response.headers,
          text: Buffer.concat(parts).toString(),
        }),
      );
      response.on("error", reject);
    });
    request.on("error", reject);
    request.end(body);
  });
}
