import { readFile } from "node:fs/promises";
import { argumentsSchema, parseOptions, UsageError, type Json } from "@astra-rl/base";
import { parse } from "yaml";
import { z } from "zod";

/** What a call of a tool gets besides its arguments. */
export interface ToolContext {
  /** Aborted when the tool may take no longer. */
  signal: AbortSignal;
}

/** A tool that an agent may call. */
export interface Tool {
  readonly name: string;
  /** For the model. */
  readonly description?: string;
  /** JSON Schema of the arguments, for the model and for checking. Default: any object. */
  readonly parameters?: Readonly<Record<string, unknown>>;
  /** Whether it changes something outside of the session: then a dry run does not run it. */
  readonly hasEffects?: boolean;
  /** @throws what the agent is told as an error */
  run(given: Json, context: ToolContext): Promise<Json> | Json;
}

/** Tools without state, or a function that makes those of each session, which then cannot be forked. */
export type Tools = readonly Tool[] | (() => readonly Tool[]);

const toolSchema = z.strictObject({
  name: z.string().min(1),
  description: z.string().optional(),
  parameters: z.record(z.string(), z.json()).optional(),
  results: z
    .array(z.strictObject({ when: z.record(z.string(), z.json()).default({}), result: z.json() }))
    .min(1),
});

const fixtureSchema = z.strictObject({ tools: z.array(toolSchema).min(1) });

/**
 * Reads tools with fixed results from a YAML or JSON file: `{tools: [{name, description, parameters, results: [{when, result}]}]}`.
 * The first entry whose `when` the arguments contain gives the result; without one the call fails.
 *
 * @throws UsageError for a file that cannot be read, or of another form
 */
export async function readToolFixture(file: string): Promise<Tool[]> {
  let content: unknown;
  try {
    content = parse(await readFile(file, "utf8"));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.split("\n")[0]! : String(cause);
    throw new UsageError("unreadable-file", `tools: cannot read ${file}: ${why}`, { cause });
  }
  const { tools } = parseOptions(file, fixtureSchema, content as z.input<typeof fixtureSchema>);
  return checkTools(
    tools.map(({ name, description, parameters, results }) => ({
      name,
      ...(description === undefined ? {} : { description }),
      ...(parameters === undefined ? {} : { parameters }),
      run: (given) => {
        const found = results.find(({ when }) => contains(given, when as Json));
        if (found !== undefined) return found.result as Json;
        throw new Error(`${name} has no result for these arguments`);
      },
    })),
    file,
  );
}

/** @throws UsageError for two tools of one name, and for parameters that no arguments could be checked with */
export function checkTools(tools: readonly Tool[], where: string): Tool[] {
  const names = tools.map(({ name }) => name);
  for (const { name, parameters } of tools) {
    if (parameters !== undefined) argumentsSchema(parameters, `${where}: parameters of ${name}`);
  }
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice === undefined) return [...tools];
  throw new UsageError(
    "duplicate-name",
    `${where}: there are two tools named ${twice}; each needs its own name`,
  );
}

/** Whether a value has all that is in `part`; lists must be equal. */
function contains(value: Json, part: Json): boolean {
  if (typeof part !== "object" || part === null || Array.isArray(part)) {
    return JSON.stringify(value) === JSON.stringify(part);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  return Object.entries(part as Record<string, Json>).every(([key, own]) => {
    const other = (value as Record<string, Json | undefined>)[key];
    return other !== undefined && contains(other, own);
  });
}

/** A tool's result with a text that was planted in it: another document, or another line. */
export function withInjection(result: Json | undefined, text: string): Json {
  if (result === undefined || result === null || result === "") return text;
  if (typeof result === "string") return `${result}\n${text}`;
  return Array.isArray(result) ? [...(result as readonly Json[]), text] : [result, text];
}
