import { pathToFileURL } from "node:url";
import { describeValue, UsageError } from "@astra-rl/base";
import { optionsOf, PROVIDERS, ToolChat } from "@astra-rl/http";
import { CacheBudget, LocalModel, makeFormat, modelFormatShape, type Sampling } from "@astra-rl/lm";
import { defineKind, disposing, messageOf, ModelCache, type KindParts } from "@astra-rl/method";
import { z } from "zod";
import { AgentModel } from "./agent-model.js";
import type { Agent } from "./agent.js";
import { requireTarget } from "./function-agent.js";
import { HTTPAgent, httpAgentOptions } from "./http-agent.js";
import { LocalTools } from "./local-tools.js";
import { ServedTools } from "./served-tools.js";
import { sessionShape, type SessionOptions } from "./session-options.js";
import { ToolAgent } from "./tool-agent.js";
import { checkTools, readToolFixture, type Tool, type Tools } from "./tool.js";

/** Options of an agent whose tools are run here. */
const toolShape = {
  tools: z
    .string()
    .min(1)
    .meta({ path: "file", resume: "content" })
    .describe(
      "The tools: a YAML or JSON file with fixed results, or a module whose export `tools` is a list of tools, or a function that makes " +
        "those of a session",
    ),
  dryRun: z
    .boolean()
    .default(true)
    .describe("Whether tools that have effects are not run but return {dry_run: true}"),
  toolSeconds: z.number().positive().max(86_400).default(30).describe("Seconds that a tool may take"),
};

/** Bytes of the key/value cache of a local model. */
const CACHE_BYTES = 2 ** 30;

const FIXTURE = /\.(?:ya?ml|json)$/iu;

/** Reads tools from a fixture file or a module. @throws UsageError for anything else */
export async function loadTools(file: string): Promise<Tools> {
  if (FIXTURE.test(file)) return readToolFixture(file);
  let exported: { tools?: unknown };
  try {
    exported = (await import(pathToFileURL(file).href)) as typeof exported;
  } catch (cause) {
    throw new UsageError(
      "module-unloadable",
      `tools: cannot load ${file}: ${messageOf(cause).split("\n")[0]}`,
      {
        cause,
      },
    );
  }
  const { tools } = exported;
  if (typeof tools === "function") {
    return () => checkTools(listOf((tools as () => unknown)(), file), file);
  }
  return checkTools(listOf(tools, file), file);
}

function listOf(tools: unknown, file: string): Tool[] {
  const isTool = (each: unknown) => {
    const { name, run } = (each ?? {}) as Partial<Tool>;
    return typeof name === "string" && name !== "" && typeof run === "function";
  };
  if (Array.isArray(tools) && tools.every(isTool)) return tools as Tool[];
  throw new UsageError(
    "wrong-export",
    `${file}: its export tools must be a list of tools {name, run} or a function that makes one, got ${describeValue(tools)}`,
  );
}

/** Options of sessions among those of a kind. */
const sessionsOf = ({ limits, retry, concurrency, open, channel }: SessionOptions): SessionOptions => ({
  limits,
  retry,
  concurrency,
  open,
  ...(channel === undefined ? {} : { channel }),
});

/** @throws UsageError for another role */
function agentModel(
  agent: Agent,
  given: SessionOptions,
  { role, name, key }: KindParts["target"],
): AgentModel {
  requireTarget(role, key);
  return new AgentModel(name, agent, sessionsOf(given), key);
}

/** The options of sessions that servers do not have themselves. */
const { retry: _, concurrency: __, ...ownShape } = sessionShape;

const openai = PROVIDERS.find(({ type }) => type === "openai")!;

export const openaiAgentKind = defineKind({
  role: "target",
  name: "openai-agent",
  summary: "A chat model with tools behind an OpenAI-compatible API; the tools are run here",
  schema: optionsOf(openai).safeExtend({ ...toolShape, ...ownShape }),
  make: async (given, parts) => {
    const { tools, dryRun, toolSeconds, limits, open, channel, ...server } = given;
    const { retry, concurrency } = server;
    const { name, key: where, generation } = parts;
    requireTarget(parts.role, where);
    const chat = new ToolChat(name, {
      server: { ...server, concurrency },
      sampling: generation as Sampling,
      where,
    });
    const model = new ServedTools(chat, server.system ?? null);
    const agent = new ToolAgent(model, await loadTools(tools), { dryRun, seconds: toolSeconds });
    return agentModel(agent, { limits, retry, concurrency, open, channel }, parts);
  },
});

export const httpAgentKind = defineKind({
  role: "target",
  name: "http-agent",
  summary: "An agent behind JSON over HTTP, with a session id in each request",
  schema: httpAgentOptions.extend(sessionShape),
  make: ({ limits, retry, concurrency, open, channel, ...agent }, parts) =>
    agentModel(new HTTPAgent(agent, parts.key), { limits, retry, concurrency, open, channel }, parts),
});

export const localAgentKind = defineKind({
  role: "target",
  name: "local-agent",
  summary: "A local chat model that writes tool calls as Hermes and Qwen models do; the tools are run here",
  schema: z.strictObject({
    model: z
      .string()
      .min(1)
      .meta({ path: "model" })
      .describe("A folder in Hugging Face format, a hub id, or embedded:<name>"),
    system: z.string().min(1).optional().describe("The system prompt"),
    format: modelFormatShape.format,
    ...toolShape,
    ...sessionShape,
  }),
  models: ({ model }) => [model],
  make: async (given, parts) => {
    const { model: source, system, format, tools, dryRun, toolSeconds } = given;
    const { name, key, generation } = parts;
    requireTarget(parts.role, key);
    const shelf = await ModelCache.open({}, { target: [source] });
    return disposing(shelf, async () => {
      const { model, tokenizer } = await shelf.frozen("target");
      const local = new LocalModel(name, {
        role: "target",
        model: () => model,
        tokenizer,
        sampling: generation as Sampling,
        cacheBudget: new CacheBudget(CACHE_BYTES),
        format: makeFormat(key, tokenizer, "target", { format }, new Date()),
      });
      const writer = new LocalTools(local, system ?? null, () => shelf.dispose());
      const agent = new ToolAgent(writer, await loadTools(tools), { dryRun, seconds: toolSeconds });
      return agentModel(agent, given, parts);
    });
  },
});
