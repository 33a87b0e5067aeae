// APIs of servers, a file each. Must not know: retries, budgets, journals, systems.
import { anthropic } from "./anthropic.js";
import type { Dialect, Provider } from "./dialect.js";
import { openaiChat, openaiCompletions } from "./openai.js";

export type { Asked, Dialect, Provider, RequestSampling } from "./dialect.js";

/** Every dialect; those of a provider in the order in which `api` names them, its default first. */
export const DIALECTS = [openaiChat, openaiCompletions, anthropic] as const satisfies readonly Dialect[];

export const PROVIDERS: readonly Provider[] = [...new Set(DIALECTS.map(({ provider }) => provider))];

/** @param api one that the schema of the options admits */
export const dialectOf = (api: string): Dialect => DIALECTS.find((dialect) => dialect.api === api)!;
