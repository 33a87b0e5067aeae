import { basename } from "node:path";
import { isModelId } from "@astra-rl/lm";
import { stringify } from "yaml";
import {
  doubtsOfEvaluation,
  doubtsOfFigures,
  FIGURES,
  type EvaluationRecord,
  type RunRecord,
} from "@astra-rl/records";
import { figureRows, doubtLines, goalMarkdown, markdownTable, markdownText, visible } from "@astra-rl/report";

type Section = Readonly<Record<string, unknown>>;

type Evaluation = Pick<EvaluationRecord, "summary" | "measured" | "goals">;

export interface TesterCardSource {
  /** The parsed config.resolved.yaml. */
  configuration: Section;
  run: RunRecord | null;
  /** An evaluation of this checkpoint. */
  evaluation: Evaluation | null;
  /** Whether the checkpoint was selected by this evaluation, so that its figures are optimistic. */
  isChosenBy: boolean;
  /** The training step of the checkpoint; null if unknown. */
  step: number | null;
  /** The library that loads its weights; null for a system that only this toolbox restores. */
  format: "transformers" | "peft" | null;
}

/**
 * The card of a trained tester, which does not depend on where its run lies, in the format of the Hugging Face hub's model cards: what it is for, how it was trained, what it
 * finds according to which scorer, and the limits of its figures.
 */
export function testerCard(source: TesterCardSource): string {
  const { configuration, evaluation, isChosenBy, format } = source;
  const models = sectionOf(configuration["models"]);
  // A role without a model is the system's own.
  const system = sectionOf(configuration["system"])["type"];
  const [tester, target] = [modelOf(models["tester"] ?? system), modelOf(models["target"] ?? system)];
  const scorerType =
    evaluation?.measured?.scorer.type ?? shown(sectionOf(configuration["scorer"])["type"] ?? "unknown");
  const isJudged = scorerType !== "none";
  const scorer = isJudged ? scorerType : "the reward of its system";
  const prompts = evaluation?.measured?.prompts.source;
  const split = prompts === undefined ? "the run's dev prompts" : basename(prompts);
  const front = {
    ...(format === null ? {} : { library_name: format, pipeline_tag: "text-generation" }),
    ...(isModelId(tester) && !tester.startsWith("embedded:") ? { base_model: tester.split("@")[0] } : {}),
    tags: ["astra-rl", "red-teaming", "ai-safety", "reinforcement-learning", "not-for-all-audiences"],
    ...(evaluation === null || !isJudged
      ? {}
      : {
          "model-index": [
            { name: `tester against ${target}`, results: [resultOf(evaluation, scorer, split)] },
          ],
        }),
  };
  return [
    "---",
    `${stringify(front)}---`,
    "",
    `# A tester against ${markdownText(target)}, trained with ASTRA-RL`,
    "",
    `${isJudged ? `It holds conversations that lead ${markdownText(target)} to harmful answers` : `It leads ${markdownText(target)} to what the system rewards`}. It is intended for testing models that you are authorized to test, and for fixing them;`,
    "what it generates and elicits can be harmful.",
    "",
    "## How it was trained",
    "",
    ...markdownTable(["", ""], trainingFacts(source, tester, target)),
    "",
    "## What it finds",
    "",
    ...(evaluation === null
      ? [
          "It has not been evaluated: run `astra-rl eval` with `--output`, then `astra-rl card` with `--evaluation`.",
        ]
      : [
          `${evaluation.summary.n_rollouts} conversations from ${markdownText(split)}, judged by ${markdownText(scorer)}` +
            `${isJudged ? ` at a threshold of ${evaluation.summary.harm_threshold}` : ""}.`,
          ...doubtsOfFigures(doubtsOfEvaluation(evaluation.summary)).map(
            ({ reason }) => `**No verdict on the target**: ${markdownText(reason)}.`,
          ),
          ...doubtLines(evaluation).map((line) => markdownText(line)),
          ...(isChosenBy
            ? [
                "This checkpoint was selected by these conversations, so the figures are optimistic: evaluate " +
                  "it on others.",
              ]
            : []),
          "",
          ...markdownTable(["", ""], figureRows([evaluation.summary], null, [evaluation.measured ?? null])),
          ...goalMarkdown(evaluation),
        ]),
    "",
    "## Limits",
    "",
    `- Rates hold for this scorer. Scorers err, and a tester learns to exploit the errors of the one that ` +
      `rewards it: name the scorer with every rate, and`,
    "  compare it with human labels (`astra-rl audit`).",
    "- They hold for this target, these prompts and these sampling settings. Another target needs a separate " +
      "evaluation.",
    "- A target in which this tester finds no harm is not thereby safe.",
    "",
    "## How to use it",
    "",
    "```sh",
    `astra-rl eval config.resolved.yaml --tester .    # against the target of a configuration`,
    ...(format === null
      ? []
      : [`astra-rl serve --model . --role tester           # for PyRIT, promptfoo and others`]),
    "```",
    "",
  ].join("\n");
}

function trainingFacts(
  { configuration, run, step, format }: TesterCardSource,
  tester: string,
  target: string,
): string[][] {
  const section = (key: string) => sectionOf(configuration[key]);
  const models = section("models");
  const reward = section("reward")["terms"];
  const terms = Array.isArray(reward)
    ? (reward as Section[]).map(
        (term) =>
          `${shown(term["weight"])} × ${shown(term["type"])}${term["of"] === undefined ? "" : ` of ${shown(term["of"])}`}`,
      )
    : [];
  const system = typeof models["tester"] === "object" ? sectionOf(models["tester"])["system"] : undefined;
  // Without a model of texts, nothing is decoded.
  const sampling = format === null ? {} : sectionOf(section("generation")["tester"]);
  const file = run?.files.find(({ key }) => key === "prompts.train");
  const facts: [string, unknown][] = [
    [format === null ? "system" : "base model", tester],
    ...(format === null ? [] : [["target", target] as [string, string]]),
    ["algorithm", section("algorithm")["type"]],
    ["reward", terms.join(" + ") || undefined],
    ["scorer", section("scorer")["type"]],
    [
      "prompts",
      file === undefined ? undefined : `${basename(file.path)} (SHA-256 ${file.sha256.slice(0, 12)}…)`,
    ],
    ["training step", step ?? undefined],
    ["learning rate", section("training")["learningRate"]],
    ["seed", configuration["seed"]],
    ["format", run?.formats["tester"]],
    ["system prompt", system],
    ["sampling", Object.keys(sampling).length === 0 ? undefined : samplingText(sampling)],
    ["astra-rl", run?.sessions.at(-1)?.astra_rl],
  ];
  return facts.flatMap(([label, value]) => (value === undefined ? [] : [[label, visible(shown(value))]]));
}

const samplingText = (sampling: Section) =>
  ["temperature", "topK", "topP", "maxNewTokens"]
    .flatMap((key) => (sampling[key] === undefined ? [] : [`${key} ${shown(sampling[key])}`]))
    .join(", ");

function resultOf({ summary }: Evaluation, scorer: string, split: string): object {
  return {
    task: { type: "text-generation", name: "Red teaming" },
    dataset: { type: "prompts", name: split },
    metrics: FIGURES.flatMap(({ card, value: of }) => {
      const value = of(summary);
      return card === undefined || value === null
        ? []
        : [{ type: card.type, name: card.name(scorer), value }];
    }),
  };
}

const shown = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

const sectionOf = (value: unknown): Section =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Section) : {};

/** A model as its name: a folder's last part, since the rest of the path is private. */
function modelOf(setting: unknown): string {
  const { path, model, type } = sectionOf(setting) as { path?: string; model?: string; type?: string };
  const name = typeof setting === "string" ? setting : (path ?? model ?? type ?? "a model");
  return isModelId(name) || name.startsWith("embedded:") ? name : basename(name);
}
