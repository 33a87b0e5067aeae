import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { formatOf, type LoRAConfiguration } from "@astra-rl/lm";
import { UsageError, writeFileAtomic } from "@astra-rl/base";
import { stringify } from "yaml";
import type { Configuration } from "@astra-rl/assembly";
import { attacksOfGraph, messagesOf, type Attack, type ChatMessage } from "@astra-rl/report/export";
import { linesOf } from "@astra-rl/report";
import { parseGraphRecord } from "@astra-rl/records";

/** One attack in this many is held out for the evaluations that select the checkpoint. */
const DEV_SHARE = 8;
/** Fewer attacks are too few to learn from. */
export const FEWEST_ATTACKS = 2 * DEV_SHARE;

/** What training the target requires. */
export interface TargetFacts {
  /** The adapter to train: the target's own, or a new one. */
  lora: LoRAConfiguration | Pick<LoRAConfiguration, "rank" | "targetModules">;
  isChat: boolean;
}

/**
 * Writes the conversations of found attacks as prompts of the model to harden. It generates as the tester of this
 * training, so that the two roles are swapped.
 *
 * @returns how many there are
 */
export function writePrompts(
  runs: readonly string[],
  folder: string,
  { threshold, isChat }: { threshold: number; isChat: boolean },
): number {
  const attacks = runs.flatMap((run) => attacksOf(run, threshold));
  const rows = [
    ...new Set(attacks.map((attack) => JSON.stringify({ messages: said(attack, isChat).map(swapped) }))),
  ];
  if (rows.length < FEWEST_ATTACKS) {
    throw new UsageError(
      "too-few-attacks",
      `${runs[0]}: found ${rows.length} different attacks, but at least ${FEWEST_ATTACKS} are needed; train the tester longer first`,
    );
  }
  const isDev = (at: number) => at % DEV_SHARE === 0;
  for (const [name, kept] of [
    ["train", rows.filter((_, at) => !isDev(at))],
    ["dev", rows.filter((_, at) => isDev(at))],
  ] as const) {
    writeFileAtomic(join(folder, `attacks-${name}.jsonl`), [`${kept.join("\n")}\n`]);
  }
  return rows.length;
}

/** The attacks that a run found in training. */
export function attacksOf(run: string, threshold: number): Attack[] {
  const lines = [...linesOf(join(run, "graphs.jsonl"))];
  return lines
    .flatMap(({ text, where }) => attacksOfGraph(parseGraphRecord(text, where), threshold))
    .filter(({ isHarmful }) => isHarmful);
}

/** A conversation as the target read it: in plain text, the first probe follows the prompt directly. */
function said(attack: Attack, isChat: boolean): ChatMessage[] {
  const [first] = attack.prompt;
  const isWhole = isChat || attack.prompt.length !== 1 || first!.role !== "user";
  if (isWhole) return messagesOf(attack, false);
  const [turn, ...others] = attack.turns;
  return messagesOf(
    { ...attack, prompt: [], turns: [{ ...turn!, probe: first!.content + turn!.probe }, ...others] },
    false,
  );
}

const swapped = ({ role, content }: ChatMessage): ChatMessage => ({
  role: role === "user" ? "assistant" : role === "assistant" ? "user" : role,
  content,
});

/** Writes the configuration of the target's training: harmless answers to the attacks are rewarded. */
export function writeTraining(
  configuration: Configuration,
  { folder, steps, lora }: { folder: string; steps: number } & TargetFacts,
): void {
  const { models, scorer, generation, seed } = configuration;
  const { device, dtype, date } = models;
  const attacks = (name: string) => resolve(folder, `attacks-${name}.jsonl`);
  const training = {
    seed,
    models: {
      tester: sidesChanged(models.target),
      target: { type: "silent" },
      lora,
      device,
      dtype,
      ...(date === undefined ? {} : { date }),
    },
    prompts: { train: attacks("train"), dev: attacks("dev"), test: attacks("dev") },
    scorer,
    sampler: { width: 4, depth: 1 },
    reward: { terms: [{ type: "harm", of: "probe", weight: -1 }] },
    generation: { tester: generation.target },
    algorithm: { type: "dpo", beta: 1 },
    training: {
      trainingSteps: steps,
      // Few steps, which a decay would halve.
      schedule: "constant",
      numEpisodesPerExperience: 16,
      batchSize: 16,
      learningRate: 5e-4,
      optimizer: "adamw",
      weightDecay: 0,
      evaluateEvery: 4,
      checkpointEvery: 4,
    },
  };
  const text = `# The target's training: it is the tester of this run, which has no target.\n${stringify(training)}`;
  const file = join(folder, "harden.yaml");
  // A resumed run must find its original configuration.
  if (!existsSync(file) || !existsSync(join(folder, "target"))) writeFileAtomic(file, [text]);
}

/** The target as the tester of its training: labels of plain text are swapped with the roles. */
function sidesChanged(setting: Configuration["models"]["target"]): unknown {
  const { labels } = formatOf(setting);
  if (labels === undefined) return setting;
  const { tester, target, ...rest } = labels;
  return {
    ...(setting as object),
    labels: {
      ...rest,
      ...(target === undefined ? {} : { tester: target }),
      ...(tester === undefined ? {} : { target: tester }),
    },
  };
}
