import { Command } from "@commander-js/extra-typings";
import { AstraError, describeValue, UsageError } from "@astra-rl/torch";
import type { Judged } from "../core/index.js";
import { makeScorer, readScorerSpec } from "../assembly/index.js";
import { downloadNotes } from "./configuration-options.js";
import { readJsonObjects } from "./json-lines.js";
import { wholeNumber } from "./options.js";
import { createOutput, type Streams } from "./output.js";
import { Progress } from "./progress.js";

/**
 * `astra-rl score`: one line {score, labels?} for each {text} or {prompt, response}; {score: null, error} for one that could
 * not be scored. Of {prompt, response} the response is judged, by a scorer that keeps roles as the answer to the prompt.
 */
export function scoreCommand(streams: Streams) {
  return new Command("score")
    .description(
      "Score texts or replies: one JSON line {score, labels?} for each {text} or {prompt, response}",
    )
    .requiredOption(
      "--scorer <spec>",
      'which scorer: "embedded", "keyword:FILE.json", ./file.js#name, a YAML file, or {type: …}',
    )
    .requiredOption(
      "--input <file>",
      'JSON lines of {"text"}, or of {"prompt", "response"}, whose response is judged; "-" is standard input',
    )
    .option("--batch-size <n>", "texts in one call to the scorer", wholeNumber(1), 64)
    .option("--quiet", "results and errors only", false)
    .action(async ({ scorer: spec, input, batchSize, quiet }) => {
      const output = createOutput(streams, { quiet });
      const section = await readScorerSpec(spec);
      const rows = await readJsonObjects(input, '"text": …} or {"prompt": …, "response": …', judgedOf);
      const scorer = await makeScorer(section, { hub: downloadNotes(output) });
      const progress = new Progress(output, { unit: "text", total: rows.length });
      let failed = 0;
      try {
        for (let start = 0; start < rows.length; start += batchSize) {
          for (const outcome of await scorer.scoreAndValidate(rows.slice(start, start + batchSize))) {
            if (outcome.failure) {
              failed += 1;
              output.json({ score: null, error: outcome.failure.message });
            } else {
              const { score, labels } = outcome;
              output.json(labels === undefined ? { score } : { score, labels });
            }
          }
          progress.update(Math.min(start + batchSize, rows.length));
        }
      } finally {
        scorer.dispose();
      }
      progress.end();
      if (failed > 0) throw new AstraError(`score: ${failed} of ${rows.length} texts could not be scored`);
    });
}

/** What a line asks to be judged. */
function judgedOf(line: Readonly<Record<string, unknown>>, where: string): Judged {
  const text = (field: string): string => {
    const value = line[field];
    if (typeof value === "string") return value;
    throw new UsageError(`${where}: "${field}" must be a text, got ${describeValue(value)}`);
  };
  const isExchange = "prompt" in line || "response" in line;
  if (isExchange && "text" in line) {
    throw new UsageError(
      `${where}: must have either "text", or "prompt" and "response", got ${Object.keys(line).join(", ")}`,
    );
  }
  return isExchange ? { prompt: text("prompt"), response: text("response") } : text("text");
}
