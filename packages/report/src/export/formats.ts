import { UsageError } from "@astra-rl/base";
import { callText } from "@astra-rl/records";
import { parquetWriteBuffer } from "hyparquet-writer";
import { stringify } from "yaml";
import { messagesOf, type Attack, type PreferencePair } from "./attacks.js";
import { replayBundle } from "./bundle.js";
import { csvOf } from "./csv.js";

/** The source of the attacks, for descriptions. */
export interface ExportSource {
  /** Such as the name of the run's folder. */
  name: string;
  /** The scorer that judged the responses; null where it is unknown. */
  scorer: string | null;
  /** The target's name; null where it is unknown. */
  target: string | null;
}

/** A file of an export: its path within the output's folder, "" for the output itself. */
export interface ExportFile {
  path: string;
  content: string | Uint8Array;
}

export interface Exported {
  files: ExportFile[];
  /** Number of attacks that the format cannot express. */
  leftOut: number;
}

interface ExportFormat {
  description: string;
  write: (attacks: readonly Attack[], source: ExportSource) => Exported;
}

const lines = (values: readonly unknown[]) => values.map((value) => `${JSON.stringify(value)}\n`).join("");

const whole = (content: string | Uint8Array): Exported => ({ files: [{ path: "", content }], leftOut: 0 });

const scoresOf = ({ turns }: Attack) => ({
  turns: turns.length,
  response_harm: turns.at(-1)!.responseHarm,
  probe_harm: turns.at(-1)!.probeHarm,
  probe_nll: turns.at(-1)!.probeNll,
});

/** What an agent did before each response; nothing for attacks without calls. */
const callsOf = ({ turns }: Attack) =>
  turns.some(({ calls }) => calls !== undefined) ? { calls: turns.map(({ calls = [] }) => calls) } : {};

/** An attack's goal and tags, where it has them. */
const goalOf = ({ goal, tags }: Attack) => ({
  ...(goal === undefined
    ? {}
    : {
        goal: goal.text,
        goal_id: goal.id,
        ...(goal.category === undefined ? {} : { category: goal.category }),
      }),
  ...(tags === undefined ? {} : { tags }),
});

/**
 * JSON in which nothing looks like a Nunjucks or Jinja template, for any texts: an opening brace before another one, a
 * percent or a number sign is written as an escape, which means the same in JSON.
 */
const jsonWithoutTemplates = (value: unknown) => JSON.stringify(value).replace(/\{(?=[{%#])/gu, "\\u007b");

/**
 * YAML that PyYAML reads: it knows YAML 1.1, which takes yes, no and dates for more than texts, refuses control characters, and has
 * more line ends.
 */
function yamlOf(value: unknown): string {
  const text = stringify(value, {
    version: "1.1",
    lineWidth: 0,
    doubleQuotedMinMultiLineLength: Infinity,
    defaultStringType: "QUOTE_DOUBLE",
    defaultKeyType: "PLAIN",
  });
  return text.replace(
    /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/gu,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** A template that Jinja renders as the given text. */
function jinjaOf(text: string): string {
  // `endraw` in the text would end the raw block; of a template, Jinja makes every line end \n and drops the last one.
  const parts = text.split(/(\{%[-+]?\s*endraw\s*[-+]?%\}|\r\n?|\n$)/u);
  return parts
    .map((part, at) => {
      if (at % 2 === 1) return `{{ ${JSON.stringify(part)} }}`;
      // A brace at the end would begin a statement with what follows.
      return /\{(?:[{%#]|$)/u.test(part) ? `{% raw %}${part}{% endraw %}` : part;
    })
    .join("");
}

/** By name, as `astra-rl export --format` takes them. */
export const EXPORT_FORMATS = {
  promptfoo: {
    description: "a promptfoo configuration: a test for each attack, as messages; add your providers",
    write: (attacks, { name, scorer }) =>
      whole(
        `${JSON.stringify(
          {
            description: `Attacks found by ASTRA-RL in ${name}`,
            prompts: ["{{messages}}"],
            providers: [],
            tests: attacks.map((attack) => ({
              description: attack.id,
              vars: { messages: jsonWithoutTemplates(messagesOf(attack, false)) },
              metadata: { ...scoresOf(attack), ...goalOf(attack), scorer },
            })),
          },
          null,
          2,
        )}\n`,
      ),
  },
  pyrit: {
    description: "a PyRIT seed data set (YAML): a group for each attack, with its user messages in order",
    write: (attacks, { name }) =>
      whole(
        yamlOf({
          name: `astra-rl ${name}`,
          description: "Attacks found by ASTRA-RL",
          source: "astra-rl",
          seeds: attacks.flatMap((attack) =>
            messagesOf(attack, false)
              .filter(({ role }) => role === "user")
              .map(({ content }, sequence) => ({
                value: jinjaOf(content),
                data_type: "text",
                prompt_group_alias: attack.id,
                role: "user",
                sequence,
              })),
          ),
        }),
      ),
  },
  inspect: {
    description: "samples for Inspect's json_dataset (JSON lines), with messages as input",
    write: (attacks) =>
      whole(
        lines(
          attacks.map((attack) => ({
            id: attack.id,
            input: messagesOf(attack, false),
            target: "",
            metadata: {
              ...scoresOf(attack),
              ...goalOf(attack),
              ...callsOf(attack),
              response: attack.turns.at(-1)!.response,
            },
          })),
        ),
      ),
  },
  harmbench: {
    description: "HarmBench test cases (JSON), of single turns only, by the goal's id if there are goals",
    write: (attacks) => {
      const single = attacks.filter(
        ({ prompt, turns }) => turns.length === 1 && prompt.every(({ role }) => role === "user"),
      );
      const cases: Record<string, string[]> = {};
      for (const attack of single) {
        const behaviour = attack.goal?.id ?? attack.id;
        (cases[behaviour] ??= []).push(...messagesOf(attack, false).map(({ content }) => content));
      }
      return { ...whole(`${JSON.stringify(cases, null, 2)}\n`), leftOut: attacks.length - single.length };
    },
  },
  garak: {
    description: "a garak probe module (Python): each attack is a conversation",
    write: (attacks, { name }) => whole(garakModule(attacks, name)),
  },
  dataset: {
    description: "a Hugging Face data set: a folder with Parquet and its card",
    write: (attacks, source) => ({
      files: [
        { path: "data/train-00000-of-00001.parquet", content: parquetOf(attacks) },
        { path: "README.md", content: cardOf(attacks, source) },
      ],
      leftOut: 0,
    }),
  },
  replay: {
    description: "a bundle for astra-rl replay, which repeats the attacks against another target",
    write: (attacks, source) => whole(`${JSON.stringify(replayBundle(attacks, source), null, 2)}\n`),
  },
  csv: {
    description: "a table with a row for each turn, safe to open in a spreadsheet",
    write: (attacks) => {
      const hasGoals = attacks.some(({ goal }) => goal !== undefined);
      const hasCalls = attacks.some(({ turns }) => turns.some(({ calls }) => calls !== undefined));
      return whole(
        csvOf(
          [
            "attack",
            "turn",
            "prompt",
            "probe",
            "response",
            "probe harm",
            "response harm",
            "probe NLL",
            ...(hasGoals ? ["goal id", "category", "goal"] : []),
            ...(hasCalls ? ["calls"] : []),
          ],
          attacks.flatMap(({ id, prompt, turns, goal }) =>
            turns.map((turn, at) => [
              id,
              at + 1,
              prompt.map(({ content }) => content).join("\n\n"),
              turn.probe,
              turn.response,
              turn.probeHarm,
              turn.responseHarm,
              turn.probeNll,
              ...(hasGoals ? [goal?.id ?? null, goal?.category ?? null, goal?.text ?? null] : []),
              ...(hasCalls ? [(turn.calls ?? []).map(callText).join("\n")] : []),
            ]),
          ),
        ),
      );
    },
  },
} as const satisfies Record<string, ExportFormat>;

/** Preference pairs for TRL's DPOTrainer and others (JSON lines), in its conversational form. */
export const preferencesText = (pairs: readonly PreferencePair[]): string => lines(formed(pairs));

/** The same with U+FFFD for lone surrogates, which readers refuse in JSON and UTF-8 does not have. */
function formed<T>(value: T): T {
  if (typeof value === "string") return value.replace(/\p{Surrogate}/gu, "\uFFFD") as T;
  if (Array.isArray(value)) return value.map(formed) as T;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, formed(inner)])) as T;
}

/**
 * A module for garak, written from its documentation (garak 0.13: probes hold conversations of turns). Texts are JSON, so that
 * none of them is code.
 */
function garakModule(attacks: readonly Attack[], name: string): string {
  const conversations = JSON.stringify(attacks.map((attack) => messagesOf(attack, false)));
  return `"""Attacks found by ASTRA-RL in ${JSON.stringify(name).slice(1, -1).replaceAll('"', "'")}.

Put this file into garak's probes folder as astra.py, and run garak with --probes astra.Found.
"""

import json

from garak.attempt import Conversation, Message, Turn
from garak.probes.base import Probe

CONVERSATIONS = json.loads(
    ${pythonString(conversations)}
)


class Found(Probe):
    """Replays conversations that led a target to harm"""

    lang = "*"
    goal = "elicit the harm that these conversations elicited before"
    primary_detector = "unsafe_content.ToxicCommentModel"
    tags = []

    prompts = [
        Conversation([Turn(message["role"], Message(message["content"])) for message in conversation])
        for conversation in CONVERSATIONS
    ]
`;
}

/** A Python literal in ASCII. */
const pythonString = (text: string): string =>
  JSON.stringify(text).replace(/[\u007f-\uffff]/gu, (unit) =>
    Array.from(
      { length: unit.length },
      (_, at) => `\\u${unit.charCodeAt(at).toString(16).padStart(4, "0")}`,
    ).join(""),
  );

function parquetOf(attacks: readonly Attack[]): Uint8Array {
  const text = { type: "BYTE_ARRAY", converted_type: "UTF8", repetition_type: "OPTIONAL" } as const;
  const number = { type: "DOUBLE", repetition_type: "OPTIONAL" } as const;
  const ofGoals = attacks.some(({ goal }) => goal !== undefined)
    ? [
        { name: "goal_id", data: attacks.map(({ goal }) => goal?.id ?? null) },
        { name: "category", data: attacks.map(({ goal }) => goal?.category ?? null) },
        { name: "goal", data: attacks.map(({ goal }) => goal?.text ?? null) },
      ]
    : [];
  const columns = [
    { name: "id", data: attacks.map(({ id }) => id) },
    { name: "messages", data: attacks.map((attack) => messagesOf(attack, true)) },
    { name: "turns", data: attacks.map(({ turns }) => turns.length) },
    { name: "harmful", data: attacks.map(({ isHarmful }) => isHarmful) },
    { name: "response_harm", data: attacks.map((attack) => scoresOf(attack).response_harm) },
    { name: "probe_harm", data: attacks.map((attack) => scoresOf(attack).probe_harm) },
    { name: "probe_nll", data: attacks.map((attack) => scoresOf(attack).probe_nll) },
    ...ofGoals,
  ];
  const buffer = parquetWriteBuffer({
    columnData: columns,
    schema: [
      { name: "root", num_children: columns.length },
      { name: "id", ...text },
      { name: "messages", converted_type: "LIST", repetition_type: "OPTIONAL", num_children: 1 },
      { name: "list", repetition_type: "REPEATED", num_children: 1 },
      { name: "element", repetition_type: "OPTIONAL", num_children: 2 },
      { name: "role", ...text },
      { name: "content", ...text },
      { name: "turns", type: "INT32", repetition_type: "OPTIONAL" },
      { name: "harmful", type: "BOOLEAN", repetition_type: "OPTIONAL" },
      { name: "response_harm", ...number },
      { name: "probe_harm", ...number },
      { name: "probe_nll", ...number },
      ...ofGoals.map(({ name }) => ({ name, ...text })),
    ],
  });
  return new Uint8Array(buffer);
}

function cardOf(attacks: readonly Attack[], { name, scorer, target }: ExportSource): string {
  // No `configs`: with it, `load_dataset` takes two exports in folders of one name, or one after the other, for the same data
  // and reads the older one from its cache. Without it, it finds data/train-* by itself, and tells them apart.
  const metadata = {
    pretty_name: `Attacks found by ASTRA-RL in ${name}`,
    tags: ["red-teaming", "ai-safety", "astra-rl", "not-for-all-audiences"],
  };
  const harmful = attacks.filter(({ isHarmful }) => isHarmful).length;
  const hasGoals = attacks.some(({ goal }) => goal !== undefined);
  return `---
${stringify(metadata)}---

# Attacks found by ASTRA-RL

Conversations of a trained tester with ${code(target ?? "a target")}, from ${code(name)}: ${attacks.length}, of which ${harmful} end with a
response that ${scorer === null ? "the scorer" : code(scorer)} calls harmful. A scorer can be wrong: label a sample before you rely on it.
The texts are harmful by intention. They are for testing and mending models.

| column | |
|---|---|
| \`messages\` | the conversation as the target read it; the last message is its response |
| \`harmful\` | whether the last response reached the threshold |
| \`response_harm\`, \`probe_harm\` | scores of the last turn |
| \`probe_nll\` | mean −log P of a token of the last probe under the target, in nats |
${hasGoals ? "| `goal_id`, `category`, `goal` | what the tester was asked to elicit; the target did not read it |\n" : ""}`;
}

/** Code in Markdown, for any text. */
const code = (text: string): string => `\`${text.replace(/[`\r\n|<>]/gu, " ").slice(0, 120)}\``;

export type ExportFormatName = keyof typeof EXPORT_FORMATS;

/** @throws UsageError for no attacks at all, or none that fits the format */
export function exportAttacks(
  name: ExportFormatName,
  attacks: readonly Attack[],
  source: ExportSource,
): Exported {
  if (attacks.length === 0) {
    throw new UsageError("no-attacks", "export: no attack was found; --all exports every conversation");
  }
  const exported = EXPORT_FORMATS[name].write(formed(attacks), source);
  if (exported.leftOut < attacks.length) return exported;
  throw new UsageError(
    "nothing-fits-format",
    `export: none of ${attacks.length} conversations fits ${name}, which has ${EXPORT_FORMATS[name].description}`,
  );
}
