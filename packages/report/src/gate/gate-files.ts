// A gate as files that other tools show: JUnit XML and Markdown.
import { spendingLines, tagPhrases, type EvaluationDetail, type EvaluationRecord } from "@astra-rl/records";
import { conversationLines, foundConversations, markdownText, percent, visible } from "../report/index.js";
import { gateSentence, type Gate } from "./gate.js";

const MARKS = {
  passed: "✅ ASTRA-RL: passed",
  failed: "❌ ASTRA-RL: failed",
  inconclusive: "❔ ASTRA-RL: inconclusive",
};

/** A summary for a pull request. */
export function gateMarkdown(gate: Gate, record: EvaluationRecord, conversations: number): string {
  const { details, summary, measured } = record;
  const found = foundConversations({ details, summary }, conversations);
  const lines = [
    `## ${MARKS[gate.verdict]}`,
    "",
    `${markdownText(gateSentence(gate))}.`,
    "",
    `Target ${code(measured?.target.model)}, tester ${code(measured?.tester.model)}, judged by ${code(measured?.scorer.type)}.`,
  ];
  lines.push("", `${markdownText(spendingPhrase(record))}.`);
  if (measured?.tags !== undefined)
    lines.push("", `Tags: ${markdownText(tagPhrases(measured.tags).join("; "))}.`);
  if (found.length > 0) lines.push("", `### ${found.length} of the conversations that failed`);
  for (const detail of found) {
    lines.push("", ...conversationLines(detail, summary.harm_threshold).map((line) => `    ${line}`));
  }
  return `${lines.join("\n")}\n`;
}

/** What the evaluation spent: its turns, and what calls to servers took. */
const spendingPhrase = ({ summary, spending = {} }: EvaluationRecord): string =>
  [`Spent: ${summary.n_rollouts} rollouts of ${summary.n_turns} turns`, ...spendingLines(spending)].join(
    "; ",
  );

/** JUnit XML: a test case for the rate, and a failed one for each conversation that led to harm. */
export function gateJUnit(gate: Gate, record: EvaluationRecord, conversations: number): string {
  const { details, summary } = record;
  const isPassed = gate.verdict === "passed";
  const found = isPassed ? [] : foundConversations({ details, summary }, conversations);
  const failure = (message: string, text: string, type = "harm") =>
    `<failure message="${xml(message)}" type="${type}">${xml(text)}</failure>`;
  const verdictOf = (verdict: string) =>
    verdict === "passed" ? "" : failure(gateSentence(gate), gateSentence(gate), verdict);
  const cases = [
    `    <testcase classname="astra-rl" name="success rate at most ${xml(percent(gate.threshold))}">` +
      `${verdictOf(gate.verdict)}</testcase>`,
    ...(gate.over_refusal === undefined
      ? []
      : [
          `    <testcase classname="astra-rl" name="over-refusal at most ${xml(percent(gate.over_refusal.threshold))}">` +
            `${verdictOf(gate.over_refusal.verdict)}</testcase>`,
        ]),
    ...found.map((detail) => {
      const lines = conversationLines(detail, summary.harm_threshold).join("\n");
      const at = details.indexOf(detail as EvaluationDetail);
      return `    <testcase classname="astra-rl" name="rollout ${at}">${failure("the target was led to harm", lines)}</testcase>`;
    }),
  ];
  const failures = cases.filter((each) => each.includes("<failure ")).length;
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites tests="${cases.length}" failures="${failures}">`,
    `  <testsuite name="astra-rl gate" tests="${cases.length}" failures="${failures}" errors="0" skipped="0">`,
    ...propertiesOf(gate, record),
    ...cases,
    "  </testsuite>",
    "</testsuites>",
    "",
  ].join("\n");
}

/** The properties of the suite: the verdict, its bounds, and what the evaluation spent. */
function propertiesOf(
  { verdict, lower_bound, upper_bound, threshold, look }: Gate,
  record: EvaluationRecord,
): string[] {
  const spent = Object.entries(record.spending ?? {}).flatMap(([name, each]) =>
    (["calls", "input_tokens", "output_tokens", "dollars"] as const).map((key) => [
      `${name}.${key}`,
      each[key],
    ]),
  );
  const all = [
    ["verdict", verdict],
    ["lower_bound", lower_bound],
    ["upper_bound", upper_bound],
    ["threshold", threshold],
    ["look", look?.number ?? null],
    ["rollouts", record.summary.n_rollouts],
    ["turns", record.summary.n_turns],
    ["tags", record.measured?.tags === undefined ? null : tagPhrases(record.measured.tags).join("; ")],
    ...spent,
  ].filter(([, value]) => value !== null);
  return [
    "    <properties>",
    ...all.map(
      ([name, value]) => `      <property name="${xml(String(name))}" value="${xml(String(value))}"/>`,
    ),
    "    </properties>",
  ];
}

/** Text of XML 1.0, which has no control characters. */
const xml = (text: string): string =>
  text
    .replace(/[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "\uFFFD")
    .replace(/[&<>"']/gu, (mark) => `&#${mark.charCodeAt(0)};`);

const code = (text = "unknown") => `\`${visible(text).replaceAll("`", "'")}\``;
