import { Command } from "@commander-js/extra-typings";
import { Codec, generate, loadCausalLM } from "@astra-rl/lm";
import { withMemoryAdvice } from "../training/memory-advice.js";
import { modelSource } from "../assembly/index.js";
import { downloadNotes, noteHubModel } from "./configuration-options.js";
import { readJsonLines } from "./json-lines.js";
import { deviceOption, dtypeOption, numberWithin, wholeNumber } from "./options.js";
import { createOutput, type Streams } from "./output.js";
import { Progress } from "./progress.js";

/**
 * `astra-rl generate`: one JSON line {ids, text} for each {prompt}, which is read as Python's `tokenizer(prompt)`, less
 * what some tokenizers put behind a text. The ids are those sampled, the end id included, the text is what they add to
 * the prompt.
 */
export function generateCommand(streams: Streams) {
  return new Command("generate")
    .description("Continue prompts: one JSON line {ids, text} for each {prompt}")
    .requiredOption("--model <model>", "folder or hub id")
    .requiredOption("--input <file>", 'JSON lines with a "prompt" each; "-" is standard input')
    .option("--max-new-tokens <n>", "longest continuation", wholeNumber(1), 32)
    .option("--min-new-tokens <n>", "no end of sequence before so many", wholeNumber(0), 0)
    .option("--greedy", "always the likeliest token", false)
    .option("--temperature <x>", "divides the logits", numberWithin(0, Infinity), 1)
    .option("--top-k <n>", "keep so many tokens; 0 keeps all", wholeNumber(0), 0)
    .option(
      "--top-p <x>",
      "keep the likeliest tokens that reach this probability together",
      numberWithin(0, 1),
      1,
    )
    .option(
      "--repetition-penalty <x>",
      "above 1: tokens that occurred become less likely",
      numberWithin(0, Infinity),
      1,
    )
    .option("--stop <text...>", "texts that end a continuation")
    .option("--seed <n>", "names the random draws", wholeNumber(0), 0)
    .option("--batch-size <n>", "prompts continued together; does not change any result", wholeNumber(1), 32)
    .addOption(deviceOption())
    .addOption(dtypeOption())
    .option("--quiet", "results and errors only", false)
    .action(async ({ model: name, input, batchSize, seed, device, dtype, stop, quiet, ...sampling }) => {
      const output = createOutput(streams, { quiet });
      noteHubModel("--model", name, output);
      const rows = await readJsonLines(input, ["prompt"]);
      const hub = downloadNotes(output);
      const { model, tokenizer } = await loadCausalLM(modelSource(name), { device, dtype, hub });
      const codec = Codec.of(tokenizer);
      try {
        const progress = new Progress(output, { unit: "prompt", total: rows.length });
        for (let start = 0; start < rows.length; start += batchSize) {
          const batch = rows.slice(start, start + batchSize);
          const prompts = batch.map(({ prompt }) => codec.begin(prompt));
          const keys = batch.map((_, row) => ({ seed, stream: "generate", episode: start + row, node: 0 }));
          const options = { ...pick(sampling), stopStrings: stop ?? [] };
          const { ids, text } = await withMemoryAdvice("generate", () =>
            generate(model, codec, prompts, options, keys, {
              pinned: codec.prefix.length,
              log: (line) => output.note(line),
            }),
          );
          ids.forEach((row, index) => output.json({ ids: row, text: text[index]! }));
          progress.update(start + batch.length);
        }
        progress.end();
      } finally {
        model.dispose();
      }
    });
}

interface SamplingFlags {
  maxNewTokens: number;
  minNewTokens: number;
  greedy: boolean;
  temperature: number;
  topK: number;
  topP: number;
  repetitionPenalty: number;
}

/** Of a command's options those that say how to sample. */
function pick(flags: SamplingFlags): SamplingFlags {
  const { maxNewTokens, minNewTokens, greedy, temperature, topK, topP, repetitionPenalty } = flags;
  return { maxNewTokens, minNewTokens, greedy, temperature, topK, topP, repetitionPenalty };
}
