// Agents in a run: their sessions, and whether anything judges what they do.
import { AgentModel, SessionLedger, type LeftOpen } from "@astra-rl/agents";
import { createHash } from "node:crypto";
import { didYouMean, UsageError } from "@astra-rl/base";
import { distributed } from "@astra-rl/torch";
import type { AnswerJournal } from "@astra-rl/http";
import { HarmTerm, type Model, type Scorer, type System } from "@astra-rl/method";
import { doubtsOfCalls, type EvaluationDetail, type EvaluationSummary } from "@astra-rl/records";
import { ComposedScorer, ToolCallScorer } from "@astra-rl/scorers";
import { modelsOf, type AssembledSystem } from "../assemble/index.js";
import type { Configuration } from "../configuration/index.js";
import { configurationSettings } from "./run-identity.js";

/** The agents among the models of a system. */
export const agentModels = (system: System): AgentModel[] =>
  (modelsOf(system) ?? []).filter((model) => model instanceof AgentModel);

/**
 * Keeps the answers of a system's agents in a journal, and their sessions in a file for each agent; ends those that earlier processes
 * left open because they were killed. Answers of agents that are configured otherwise, or whose module has changed, are not
 * reused.
 *
 * @param stem of the file names
 * @returns a warning for each agent that has some left
 */
export async function keepSessions(
  { system }: AssembledSystem,
  stem: string,
  journal: AnswerJournal,
  configuration: Configuration,
): Promise<string[]> {
  const agents = agentModels(system);
  const setting = agents.length === 0 ? "" : settingOf(configuration);
  const rank = distributed.rank() === 0 ? "" : `.rank-${distributed.rank()}`;
  const warnings: string[] = [];
  for (const agent of agents) {
    const ledger = new SessionLedger(agent.name, `${stem}.${agent.name}-sessions${rank}.jsonl`);
    agent.keepSessions(journal, ledger, setting);
    warnings.push(...warningOf(agent.name, await agent.endLeftOpen()));
  }
  return warnings;
}

/** A digest of everything that the answers of targets depend on, besides what they are asked. */
function settingOf(configuration: Configuration): string {
  const { values, contents } = configurationSettings(configuration);
  const facts = [values, contents].map((part) =>
    Object.entries(part)
      .filter(([key]) => /^(?:models\.(?:target|otherTargets)|generation\.target)\b/u.test(key))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
  return createHash("sha256").update(JSON.stringify(facts)).digest("base64url");
}

/** Ends the sessions of all agents. @returns a warning for each agent that has some left */
export async function endSessions({ system }: AssembledSystem): Promise<string[]> {
  const warnings: string[] = [];
  for (const agent of agentModels(system)) warnings.push(...warningOf(agent.name, await agent.closed()));
  return warnings;
}

/** Maximum number of sessions in a warning; all are in the ledger. */
const MOST_SHOWN = 5;

function warningOf(name: string, left: readonly LeftOpen[]): string[] {
  if (left.length === 0) return [];
  const shown = left.slice(0, MOST_SHOWN).map(({ session, error }) => {
    return `${session ?? "one without an id"}${error === null ? "" : ` (${error})`}`;
  });
  const more = left.length > MOST_SHOWN ? `, and ${left.length - MOST_SHOWN} more` : "";
  return [`the ${name} has ${left.length} sessions that could not be ended: ${shown.join(", ")}${more}`];
}

/** Removes the files of sessions that have all ended: for an evaluation that is complete. */
export function forgetSessions({ system }: AssembledSystem): void {
  for (const agent of agentModels(system)) agent.ledger.remove();
}

/** A line for each agent with what became of its sessions in all processes. */
export async function sessionNotes({ system }: AssembledSystem): Promise<string[]> {
  const notes: string[] = [];
  for (const { name, counts } of agentModels(system)) {
    const all = await distributed.allGatherObject(counts);
    const sum = (key: keyof typeof counts) => all.reduce((total, own) => total + own[key], 0);
    const [forked, diverged] = [sum("forked"), sum("diverged")];
    const sessions = `${name}: ${sum("started") + forked} sessions, ${forked} of them forks and ${sum("replayed")} replays`;
    notes.push(
      diverged === 0 ? sessions : `${sessions}; ${diverged} answers followed from other earlier ones`,
    );
  }
  return notes;
}

/**
 * Refuses a scorer of calls that could never find anything: where a target calls no tools, and where no agent has a tool that a rule
 * names.
 *
 * @throws UsageError
 */
export function requireCalls({ system, evaluators }: AssembledSystem): void {
  const { scorer, second, utility, reward } = evaluators;
  const ofTerms = reward?.terms.flatMap(({ term }) => (term instanceof HarmTerm ? term.scorer : [])) ?? [];
  const judges = [scorer, second, utility, ...ofTerms].filter((each) => each !== undefined);
  for (const tool of judges.flatMap(toolsOf)) requireTool(system, tool);
  const judge = judges.find((each) => each.needsCalls);
  // A system need not list its models. A model that tells the likelihood reads as the target does, but answers nothing.
  const { likelihood } = (system as { parts?: { likelihood?: unknown } }).parts ?? {};
  const models = (modelsOf(system) ?? []).filter((model) => model !== likelihood) as Partial<Model>[];
  const callsNothing = models.some(({ role, callsTools }) => role === "target" && callsTools !== true);
  if (judge === undefined || !callsNothing) return;
  const place =
    judge === utility
      ? "evaluation.utility:"
      : ofTerms.includes(judge) && judge !== scorer
        ? "reward.terms: a scorer,"
        : "scorer:";
  throw new UsageError(
    "no-tool-calls",
    `${place} ${judge.name} judges what agents do, but a target (models.target, models.otherTargets) tells no tool calls, so that ` +
      "nothing would be found; use an agent as target (an http-agent with send.calls), or another scorer",
  );
}

/**
 * The summary of an evaluation with doubts about calls: those that a scorer judges, and those that bring the tester's texts. A wrong
 * place or name of a tool leaves none.
 */
export function withDoubtsOfCalls(
  summary: EvaluationSummary,
  details: readonly EvaluationDetail[],
  { system, evaluators }: AssembledSystem,
): EvaluationSummary {
  const scorer = (system as { scorer?: Scorer | null }).scorer ?? evaluators.scorer;
  const channels = agentModels(system).flatMap(({ name, options: { channel } }) => {
    if (channel === undefined) return [];
    const own = details.filter(({ overall: { target = name } }) => target === name);
    const calls = own.flatMap(({ per_turn: turns }) => turns.flatMap(({ calls: made = [] }) => made));
    return own.length === 0
      ? []
      : [[channel.tool, calls.filter(({ name: tool }) => tool === channel.tool).length] as const];
  });
  const doubts = doubtsOfCalls(summary, { judgesCalls: scorer.needsCalls, channels: new Map(channels) });
  return doubts.length === 0 ? summary : { ...summary, doubts: [...summary.doubts, ...doubts] };
}

/** The tools that a scorer's rules name. */
function toolsOf(scorer: Scorer): readonly string[] {
  if (scorer instanceof ToolCallScorer) return scorer.tools;
  return scorer instanceof ComposedScorer ? scorer.parts.flatMap(toolsOf) : [];
}

/** @throws UsageError for a tool that no agent has; unknown, and so no error, where some agent does not list its tools */
function requireTool(system: System, tool: string): void {
  const known = agentModels(system).map(({ agent }) => agent.toolNames);
  if (known.length === 0 || known.includes(undefined)) return;
  const names = known.flatMap((each) => each ?? []);
  if (names.includes(tool)) return;
  throw new UsageError(
    "unknown-tool",
    `scorer: a rule names the tool ${JSON.stringify(tool)}, which no agent has${didYouMean(tool, names) || `; they have ${names.join(", ")}`}`,
  );
}
