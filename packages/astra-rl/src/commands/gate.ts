import { Command, InvalidArgumentError } from "@commander-js/extra-typings";
import { AstraError, checkReplaceableFile } from "@astra-rl/base";
import {
  acceptAdvice,
  gateJUnit,
  gateMarkdown,
  gateOf,
  gateSarif,
  gateSentence,
  inconclusiveAdvice,
  Ledger,
  neededSentence,
} from "@astra-rl/report";
import { stringifyEvaluation } from "@astra-rl/records";
import { acceptDoubtsOption } from "@astra-rl/assembly/command";
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

/** That of a verdict, which must be more often right than wrong: 5% is the chance of a wrong one. */
function confidenceOf(text: string): number {
  const value = share(text);
  if (value >= 0.5) return value;
  throw new InvalidArgumentError(
    "It must be at least 50%, such as 95%, with which 5% of verdicts may be wrong.",
  );
}

/** `astra-rl gate EVALUATION`: passes, fails (exit code 1) or is inconclusive (3) about a target's success rate. */
export function gateCommand(streams: Streams) {
  return new Command("gate")
    .description(
      "Judge a target by an evaluation: passed, failed (exit code 1: its success rate is above a threshold) or inconclusive (3)",
    )
    .argument(
      "[evaluation]",
      "file written by eval --output; without one, print how many rollouts the threshold requires",
    )
    .requiredOption("--max-success <share>", "maximum success rate, such as 5%", share)
    .option(
      "--max-over-refusal <share>",
      "maximum over-refusal of benign prompts (evaluation.benign), such as 10%; a missing measurement cannot pass",
      share,
    )
    .option(
      "--confidence <share>",
      "confidence of a verdict; of all verdicts together with a ledger",
      confidenceOf,
      0.95,
    )
    .option(
      "--ledger <file>",
      "count the uses of this gate in a file, whose verdicts together keep the confidence; for nightly or per-commit gates",
    )
    .option(
      "--look <n>",
      "the least number of this use among them, such as a CI system's run number, for where the ledger may be lost",
      wholeNumber(1),
    )
    .addOption(acceptDoubtsOption())
    .option("--conversations <n>", "number of conversations that led to harm to show", wholeNumber(0), 5)
    .option("--junit <file>", "write JUnit XML to this file")
    .option("--markdown <file>", 'write a summary for pull requests to this file; "-" is standard output')
    .option("--sarif <file>", "write SARIF 2.1.0 to this file")
    .option("--json", "print the result as JSON", false)
    .option("--quiet", "results, warnings and errors only", false)
    .action(
      async (
        path,
        {
          maxSuccess,
          maxOverRefusal = null,
          confidence,
          accept,
          conversations,
          ledger: ledgerPath,
          look: least = null,
          junit,
          markdown,
          sarif,
          json,
          quiet,
        },
      ) => {
        const output = createOutput(streams, { quiet });
        if (path === undefined) {
          const ledger = ledgerPath === undefined ? null : new Ledger(ledgerPath, confidence);
          const next = ledger?.numberOf("", null, least ?? 1) ?? least;
          output.result(neededSentence(maxSuccess, confidence, next));
          return;
        }
        for (const file of [junit, markdown, sarif])
          if (file !== undefined && file !== "-") checkReplaceableFile(file);
        const record = readEvaluation(path);
        const text = stringifyEvaluation(record);
        const limits = { maxSuccess, maxOverRefusal, accept };
        const decide = (look: number | null) =>
          gateOf(record, maxSuccess, confidence, { accepted: accept, maxOverRefusal, look });
        const look = (ledger: Ledger) => {
          const decided = decide(ledger.numberOf(text, limits, least ?? 1));
          const { number, error_rate } = decided.look!;
          ledger.add(text, limits, { look: number, error_rate, verdict: decided.verdict });
          return decided;
        };
        // The look is in the ledger before anything is shown, so that none is left out.
        const gate =
          ledgerPath === undefined
            ? decide(least)
            : await Ledger.hold(ledgerPath, confidence, look, { onTakeover: output.note });
        if (junit !== undefined) writeResult(junit, gateJUnit(gate, record, conversations));
        if (sarif !== undefined) writeResult(sarif, gateSarif(gate, record, conversations, path));
        if (markdown === "-") streams.stdout.write(gateMarkdown(gate, record, conversations));
        else if (markdown !== undefined) writeResult(markdown, gateMarkdown(gate, record, conversations));
        if (json) output.json(gate);
        else if (markdown !== "-") output.result(gateSentence(gate));
        if (gate.verdict === "failed") {
          const isRefusing = gate.over_refusal?.verdict === "failed";
          throw new AstraError(
            `gate: ${path}: ${isRefusing ? "over-refusal" : "the success rate"} is above the threshold`,
          );
        }
        if (gate.verdict === "inconclusive") {
          if (gate.doubts.length > 0)
            throw new NoVerdictError("gate", gate.doubts, acceptAdvice(gate.doubts));
          throw new NoVerdictError("gate", [], inconclusiveAdvice(gate));
        }
      },
    );
}
