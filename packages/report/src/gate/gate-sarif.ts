import { createHash } from "node:crypto";
import { packageVersion } from "@astra-rl/base";
import { FRAMEWORKS, tagOf, tagsOf, type EvaluationDetail, type EvaluationRecord } from "@astra-rl/records";
import { conversationLines, foundConversations } from "../report/index.js";
import { gateSentence, type Gate } from "./gate.js";

const RULES = [
  { id: "success-rate", text: "The success rate of attacks is below the threshold" },
  { id: "over-refusal", text: "The over-refusal of benign prompts is below the threshold" },
  { id: "harmful-response", text: "The target was led to harm" },
];

/** Verdicts as kinds of SARIF results, whose level is "none" unless they fail. */
const KINDS = {
  passed: { kind: "pass", level: "none" },
  failed: { kind: "fail", level: "error" },
  inconclusive: { kind: "review", level: "none" },
} as const;

/**
 * SARIF 2.1.0 (OASIS, https://docs.oasis-open.org/sarif/sarif/v2.1.0/): a result for each limit, and one for each conversation that led
 * to harm. Texts of models are properties, not messages, which may have links and placeholders.
 *
 * @param evaluation the path of its file, the location of all results
 */
export function gateSarif(
  gate: Gate,
  record: EvaluationRecord,
  conversations: number,
  evaluation: string,
): string {
  const { details, summary, spending = {} } = record;
  const found = gate.verdict === "passed" ? [] : foundConversations({ details, summary }, conversations);
  const locations = [
    {
      physicalLocation: {
        artifactLocation: { uri: encodeURI(evaluation.replaceAll("\\", "/")) },
        region: { startLine: 1 },
      },
    },
  ];
  const taxaOf = (goal?: string) => {
    const tags = tagsOf(record, goal);
    const taxa = (tags === "none" ? [] : tags).map((tag) => {
      const { framework, id } = tagOf(tag)!;
      return { id, toolComponent: { name: framework } };
    });
    return taxa.length === 0 ? {} : { taxa };
  };
  const used = new Set(
    [tagsOf(record), ...(record.goals ?? []).map(({ id }) => tagsOf(record, id))].flatMap((tags) =>
      tags === "none" ? [] : tags,
    ),
  );
  const result = (
    rule: string,
    verdict: keyof typeof KINDS,
    text: string,
    identity: unknown,
    more: { properties?: object; taxa?: object[] } = {},
  ) => ({
    ruleId: rule,
    ruleIndex: RULES.findIndex(({ id }) => id === rule),
    ...KINDS[verdict],
    message: { text: literal(text) },
    locations,
    partialFingerprints: {
      "astraRl/v1": createHash("sha256")
        .update(JSON.stringify([rule, identity]))
        .digest("hex"),
    },
    ...more,
  });
  const { over_refusal: refusals } = gate;
  const results = [
    result("success-rate", gate.verdict, gateSentence(gate), summary.harm_threshold, taxaOf()),
    ...(refusals === undefined
      ? []
      : [result("over-refusal", refusals.verdict, gateSentence(gate), refusals.threshold)]),
    ...found.map((detail) =>
      result(
        "harmful-response",
        "failed",
        `The target was led to harm in rollout ${details.indexOf(detail as EvaluationDetail)}`,
        detail.per_turn.map(({ context, probe }) => [context, probe]),
        {
          ...taxaOf(detail.overall.goal),
          properties: { conversation: conversationLines(detail, summary.harm_threshold, 2000) },
        },
      ),
    ),
  ];
  const taxonomies = Object.entries(FRAMEWORKS).flatMap(([key, { name, version }]) => {
    const taxa = [...used].map((tag) => tagOf(tag)!).filter(({ framework }) => framework === key);
    if (taxa.length === 0) return [];
    const listed = taxa.map(({ id, name: text }) => ({ id, name: text, shortDescription: { text } }));
    return [{ name: key, fullName: name, version, taxa: listed }];
  });
  const log = {
    $schema: "https://json.schemastore.org/sarif-2.1.0.json",
    version: "2.1.0",
    runs: [
      {
        tool: {
          driver: {
            name: "astra-rl",
            version: packageVersion,
            rules: RULES.map(({ id, text }) => ({ id, shortDescription: { text } })),
          },
        },
        ...(taxonomies.length === 0 ? {} : { taxonomies }),
        results,
        properties: {
          verdict: gate.verdict,
          lowerBound: gate.lower_bound,
          upperBound: gate.upper_bound,
          threshold: gate.threshold,
          rollouts: summary.n_rollouts,
          turns: summary.n_turns,
          spending,
        },
      },
    ],
  };
  return `${JSON.stringify(log, null, 2)}\n`;
}

/** A message without placeholders and links: braces are doubled, and brackets have a backslash (SARIF, section 3.11). */
const literal = (text: string): string => text.replace(/[{}]/gu, "$&$&").replace(/[\\[\]]/gu, "\\$&");
