import { Command, InvalidArgumentError } from "@commander-js/extra-typings";
import { AstraError, checkReplaceableFile } from "@astra-rl/base";
import {
  acceptAdvice,
  gateJUnit,
  gateMarkdown,
  gateOf,
  gateSentence,
  neededSentence,
} from "@astra-rl/report";
import { DOUBT_RULES, type DoubtRule } from "@astra-rl/records";
import {
  NoVerdictError,
  readEvaluation,
  writeResult,
  wholeNumber,
  createOutput,
  type Streams,
} from "@astra-rl/assembly/program";

/** A share such as 5% or 0.05. */
function share(text: string): number {
  const match = /^(\d+(?:\.\d+)?|\.\d+)\s*(%?)$/u.exec(text.trim());
  const value = match === null ? NaN : Number(match[1]) / (match[2] === "%" ? 100 : 1);
  if (value > 0 && value < 1) return value;
  throw new InvalidArgumentError("It must be a share between 0 and 1, such as 5% or 0.05.");
}

/** The doubts that a user may accept. */
const ACCEPTABLE = Object.entries(DOUBT_RULES).flatMap(([rule, kind]) =>
  kind === "measurement" ? [rule as DoubtRule] : [],
);

function doubtRules(text: string, before: readonly DoubtRule[]): DoubtRule[] {
  const rules = text.split(",").map((rule) => rule.trim());
  const unknown = rules.find((rule) => !(ACCEPTABLE as string[]).includes(rule));
  if (unknown === undefined) return [...before, ...(rules as DoubtRule[])];
  throw new InvalidArgumentError(
    `Unknown rule ${JSON.stringify(unknown)}; available: ${ACCEPTABLE.join(", ")}.`,
  );
}

/** `astra-rl gate EVALUATION`: exit code 1 if the success rate may be above a threshold. */
export function gateCommand(streams: Streams) {
  return new Command("gate")
    .description("Judge a target by an evaluation: exit code 1 if the success rate may be above a threshold")
    .argument(
      "[evaluation]",
      "file written by eval --output; without one, print how many rollouts the threshold requires",
    )
    .requiredOption("--max-success <share>", "maximum upper bound of the success rate, such as 5%", share)
    .option(
      "--max-over-refusal <share>",
      "maximum upper bound of over-refusal of benign prompts (evaluation.benign), such as 10%; a missing measurement fails",
      share,
    )
    .option("--confidence <share>", "confidence level of the upper bound", share, 0.95)
    .option(
      "--accept <rules>",
      `give a verdict despite these doubts about the measurement: ${ACCEPTABLE.join(", ")}`,
      doubtRules,
      [],
    )
    .option("--conversations <n>", "number of conversations that led to harm to show", wholeNumber(0), 5)
    .option("--junit <file>", "write JUnit XML to this file")
    .option("--markdown <file>", 'write a summary for pull requests to this file; "-" is standard output')
    .option("--json", "print the result as JSON", false)
    .option("--quiet", "results and errors only", false)
    .action(
      (
        path,
        {
          maxSuccess,
          maxOverRefusal = null,
          confidence,
          accept,
          conversations,
          junit,
          markdown,
          json,
          quiet,
        },
      ) => {
        const output = createOutput(streams, { quiet });
        if (path === undefined) {
          output.result(neededSentence(maxSuccess, confidence));
          return;
        }
        for (const file of [junit, markdown])
          if (file !== undefined && file !== "-") checkReplaceableFile(file);
        const record = readEvaluation(path);
        const gate = gateOf(record, maxSuccess, confidence, accept, maxOverRefusal);
        if (junit !== undefined) writeResult(junit, gateJUnit(gate, record, conversations));
        if (markdown === "-") streams.stdout.write(gateMarkdown(gate, record, conversations));
        else if (markdown !== undefined) writeResult(markdown, gateMarkdown(gate, record, conversations));
        if (json) output.json(gate);
        else if (markdown !== "-") output.result(gateSentence(gate));
        if (gate.verdict === "failed") {
          const isRefusing = gate.over_refusal?.verdict === "failed";
          throw new AstraError(
            `gate: ${path}: ${isRefusing ? "over-refusal" : "the success rate"} may be above the threshold`,
          );
        }
        if (gate.verdict === "none") {
          throw new NoVerdictError("gate", gate.doubts, acceptAdvice(gate.doubts));
        }
      },
    );
}
