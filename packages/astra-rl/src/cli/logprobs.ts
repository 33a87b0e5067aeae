import { Command } from "@commander-js/extra-typings";
import { Codec, contextThatFits, loadCausalLM, tokenLogprobs } from "@astra-rl/lm";
import { noGrad, NotFiniteError } from "@astra-rl/torch";
import { withMemoryAdvice } from "../training/memory-advice.js";
import { modelSource } from "../assembly/index.js";
import { downloadNotes, noteHubModel } from "./configuration-options.js";
import { readJsonLines } from "./json-lines.js";
import { deviceOption, dtypeOption, wholeNumber } from "./options.js";
import { createOutput, type Streams } from "./output.js";
import { Progress } from "./progress.js";

/**
 * `astra-rl logprobs`: one JSON line {contextIds, continuationIds, logprobs} for each {context, continuation}. The
 * context's ids are those that the model read: as Python's `tokenizer(context)`, less what some tokenizers put behind a
 * text; cut from the left, behind the beginning-of-text, where the window asks for it; for an empty context of a
 * tokenizer that puts nothing in front, the token that stands in for it. The continuation's are those of
 * `tokenizer(continuation, add_special_tokens=False)`.
 */
export function logprobsCommand(streams: Streams) {
  return new Command("logprobs")
    .description(
      "Log-probabilities of continuations: one JSON line {contextIds, continuationIds, logprobs} for each {context, continuation}",
    )
    .requiredOption("--model <model>", "folder or hub id")
    .requiredOption(
      "--input <file>",
      'JSON lines with a "context" and a "continuation" each; "-" is standard input',
    )
    .option("--batch-size <n>", "lines read together; does not change any result", wholeNumber(1), 32)
    .addOption(deviceOption())
    .addOption(dtypeOption())
    .option("--quiet", "results and errors only", false)
    .action(async ({ model: name, input, batchSize, device, dtype, quiet }) => {
      const output = createOutput(streams, { quiet });
      noteHubModel("--model", name, output);
      const rows = await readJsonLines(input, ["context", "continuation"]);
      const hub = downloadNotes(output);
      const { model, tokenizer } = await loadCausalLM(modelSource(name), { device, dtype, hub });
      const codec = Codec.of(tokenizer);
      try {
        const progress = new Progress(output, { unit: "line", total: rows.length });
        for (let start = 0; start < rows.length; start += batchSize) {
          const batch = rows.slice(start, start + batchSize).map((row) => {
            const context = codec.begin(row.context);
            const continuation = tokenizer.encode(row.continuation);
            const pinned = codec.prefix.length;
            const where = `${input}:${row.line}`;
            return {
              context: contextThatFits(model.config, { context, continuation, pinned }, where),
              continuation,
            };
          });
          const logprobs = await withMemoryAdvice("logprobs", () =>
            noGrad(() => tokenLogprobs(model, batch)),
          );
          const values = logprobs.toTypedArray();
          const columns = logprobs.shape[1] ?? 0;
          logprobs.dispose();
          batch.forEach(({ context, continuation }, row) => {
            const from = row * columns;
            const found = Array.from(values.subarray(from, from + continuation.length) as Float32Array);
            const wrong = found.findIndex((value) => !Number.isFinite(value));
            if (wrong >= 0) {
              throw new NotFiniteError(
                `${input}:${rows[start + row]!.line}: the model gives no finite log-probability of token ${wrong + 1} of ` +
                  `the continuation (${found[wrong]}): its weights are damaged`,
              );
            }
            output.json({ contextIds: context, continuationIds: continuation, logprobs: found });
          });
          progress.update(start + batch.length);
        }
        progress.end();
      } finally {
        model.dispose();
      }
    });
}
