import { Command, Option } from "@commander-js/extra-typings";
import {
  ChatTemplate,
  Codec,
  contextThatFits,
  generate,
  loadCausalLM,
  resolveCheckpoint,
  Tokenizer,
  tokenLogprobs,
} from "@astra-rl/lm";
import { AstraError, NotFiniteError, UsageError } from "@astra-rl/base";
import { noGrad } from "@astra-rl/torch";
import { z } from "zod";
import { judgesIn, makeScorer, modelSource, generationSchema } from "@astra-rl/assembly";
import {
  deviceOption,
  downloadNotes,
  dtypeOption,
  loggerOf,
  noteHubModel,
  Progress,
  readScorerSpec,
} from "@astra-rl/assembly/command";
import {
  readJsonLines,
  checked,
  quietOption,
  wholeNumber,
  createOutput,
  type Output,
  type Streams,
} from "@astra-rl/assembly/program";
import { withMemoryAdvice } from "@astra-rl/method";
import "@astra-rl/contrib/kinds";

/** A command that maps each JSON line of its input to one JSON line. */
interface TextCommand<Row, Flags> {
  name: string;
  description: string;
  /** Common pitfalls, below the help. */
  notes?: string;
  /** Describes an input line, for the help and the message about an empty file. */
  shape: string;
  row: z.ZodType<Row>;
  unit: string;
  options: readonly Option[];
  /** Yields outputs in row order. `where(index)` is the prefix for a message about a row. */
  answer: (
    rows: readonly Row[],
    flags: Flags,
    output: Output,
    where: (index: number) => string,
  ) => AsyncGenerator<object>;
}

function textCommand<Row, Flags>(definition: TextCommand<Row, Flags>) {
  const { name, description, notes, shape, row, unit, options, answer } = definition;
  return (streams: Streams) => {
    const command = new Command(name)
      .description(`${description} for each ${shape}`)
      .requiredOption("--input <file>", `JSON lines of ${shape}; "-" is standard input`);
    for (const option of options) command.addOption(option);
    if (notes !== undefined) command.addHelpText("after", `\n${notes}`);
    return command.addOption(quietOption()).action(async ({ input, quiet, ...rest }) => {
      const output = createOutput(streams, { quiet });
      const flags = rest as Flags;
      const { model } = rest as { model?: string };
      if (model !== undefined) noteHubModel("--model", model, loggerOf(output));
      const rows = await readJsonLines(input, shape, row);
      const progress = new Progress(output, { unit, total: rows.length });
      const where = (index: number) => `${input}:${rows[index]!.line}`;
      const values = rows.map(({ value }) => value);
      let done = 0;
      try {
        for await (const line of answer(values, flags, output, where)) {
          output.json(line);
          progress.update((done += 1));
        }
      } finally {
        progress.end();
      }
    });
  };
}

const required = (flags: string, description: string) => new Option(flags, description).makeOptionMandatory();
const modelOption = () => required("--model <model>", "folder or hub id");
const batchSizeOption = (what: string, size: number) =>
  new Option("--batch-size <n>", what).argParser(wholeNumber(1)).default(size);

interface ModelFlags {
  model: string;
  device: string;
  dtype: "float32" | "bfloat16";
  batchSize: number;
}

/** Loads the model, processes batches, and disposes of the model. */
async function* withModel<Row>(
  rows: readonly Row[],
  { model: name, device, dtype, batchSize }: ModelFlags,
  output: Output,
  answer: (
    loaded: Awaited<ReturnType<typeof loadCausalLM>> & { codec: Codec },
    batch: readonly Row[],
    start: number,
  ) => AsyncGenerator<object>,
): AsyncGenerator<object> {
  const loaded = await loadCausalLM(modelSource(name), { device, dtype, hub: downloadNotes(output) });
  try {
    const codec = Codec.of(loaded.tokenizer);
    for (let start = 0; start < rows.length; start += batchSize) {
      yield* answer({ ...loaded, codec }, rows.slice(start, start + batchSize), start);
    }
  } finally {
    loaded.model.dispose();
  }
}

/**
 * `astra-rl logprobs`. The context ids are the model's input: Python's `tokenizer(context)` without appended special
 * tokens; truncated from the left, keeping the BOS token, if the window is too small; a replacement token if the
 * context is empty and the tokenizer prepends nothing. The continuation ids are `tokenizer(continuation,
 * add_special_tokens=False)`.
 */
export const logprobsCommand = textCommand<{ context: string; continuation: string }, ModelFlags>({
  name: "logprobs",
  description:
    "Log-probabilities of continuations: one JSON line {contextIds, continuationIds, logprobs, cut?}",
  notes:
    "Context and continuation are tokenized separately. A SentencePiece tokenizer begins each text with a " +
    "space (▁), so that a " +
    'continuation of "at" after "c" is read as " at"; continuationIds are the ids that were scored. cut: the ' +
    "number of the context's " +
    "oldest tokens that were dropped because they do not fit the model's context window.",
  shape: '{"context": …, "continuation": …}',
  row: z.object({ context: z.string(), continuation: z.string() }),
  unit: "line",
  options: [
    modelOption(),
    batchSizeOption("lines processed together; does not affect results", 32),
    deviceOption(),
    dtypeOption(),
  ],
  async *answer(rows, flags, output, where) {
    let shortened = 0;
    yield* withModel(rows, flags, output, async function* ({ model, tokenizer, codec }, batch, start) {
      const items = batch.map((row, index) => {
        const parts = { context: codec.begin(row.context), continuation: tokenizer.encode(row.continuation) };
        const pinned = codec.prefix.length;
        const context = contextThatFits(model.config, { ...parts, pinned }, where(start + index));
        return { ...parts, context, cut: Math.max(0, parts.context.length - context.length) };
      });
      shortened += items.filter(({ cut }) => cut > 0).length;
      const logprobs = await withMemoryAdvice("logprobs", () => noGrad(() => tokenLogprobs(model, items)));
      const values = logprobs.toTypedArray() as Float32Array;
      const columns = logprobs.shape[1] ?? 0;
      logprobs.dispose();
      for (const [index, { context, continuation, cut }] of items.entries()) {
        const from = index * columns;
        const found = Array.from(values.subarray(from, from + continuation.length));
        const wrong = found.findIndex((value) => !Number.isFinite(value));
        if (wrong >= 0) {
          throw new NotFiniteError(
            `${where(start + index)}: the model gives no finite log-probability of token ${wrong + 1} of the continuation ` +
              `(${found[wrong]}): its weights are damaged`,
          );
        }
        yield {
          contextIds: context,
          continuationIds: continuation,
          logprobs: found,
          ...(cut > 0 ? { cut } : {}),
        };
      }
    });
    if (shortened > 0) {
      output.alert(
        `logprobs: ${shortened} of ${rows.length} contexts are longer than the model's window; their oldest tokens were left out`,
      );
    }
  },
});

/** Numeric generation options with their defaults: sampling from the full distribution. */
const SAMPLING = {
  maxNewTokens: 32,
  minNewTokens: 0,
  temperature: 1,
  topK: 0,
  topP: 1,
  repetitionPenalty: 1,
};

type SamplingFlags = typeof SAMPLING & { greedy: boolean; stop?: string[]; seed: number };

const samplingOptions = () =>
  Object.entries(SAMPLING).map(([name, value]) => {
    const schema = generationSchema.shape[name as keyof typeof SAMPLING].unwrap() as z.ZodNumber;
    const flag = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    const { description = "" } = generationSchema.shape[name as keyof typeof SAMPLING];
    return new Option(`--${flag} <n>`, description).argParser(checked(schema)).default(value);
  });

/**
 * `astra-rl generate`. Prompts are tokenized as by Python's `tokenizer(prompt)`, without appended special tokens.
 * `ids` are the sampled ids, including EOS; `text` is what they add to the prompt.
 */
export const generateCommand = textCommand<{ prompt: string }, ModelFlags & SamplingFlags>({
  name: "generate",
  description: "Continue prompts: one JSON line {ids, text}",
  shape: '{"prompt": …}',
  row: z.object({ prompt: z.string() }),
  unit: "prompt",
  options: [
    modelOption(),
    ...samplingOptions(),
    new Option("--greedy", "always choose the most likely token").default(false),
    new Option("--stop <text...>", "texts that end a continuation (stop strings)"),
    new Option("--seed <n>", "seed of the random draws").argParser(wholeNumber(0)).default(0),
    batchSizeOption("prompts processed together; does not affect results", 32),
    deviceOption(),
    dtypeOption(),
  ],
  answer: (rows, flags, output) => {
    const { seed, stop = [], greedy } = flags;
    const numbers = Object.keys(SAMPLING).map((name) => [name, flags[name as keyof typeof SAMPLING]]);
    const options = { ...(Object.fromEntries(numbers) as typeof SAMPLING), greedy, stopStrings: stop };
    return withModel(rows, flags, output, async function* ({ model, codec }, batch, start) {
      const prompts = batch.map(({ prompt }) => codec.begin(prompt));
      const keys = batch.map((_, index) => ({ seed, stream: "generate", episode: start + index, node: 0 }));
      const { ids, text } = await withMemoryAdvice("generate", () =>
        generate(model, codec, prompts, options, keys, {
          pinned: codec.prefix.length,
          log: (line) => output.note(line),
        }),
      );
      for (const [index, row] of ids.entries()) yield { ids: row, text: text[index]! };
    });
  },
});

const scoredRow = z
  .object({ text: z.string().optional(), prompt: z.string().optional(), response: z.string().optional() })
  .transform(({ text, prompt, response }, context) => {
    if (text !== undefined && prompt === undefined && response === undefined) return text;
    if (text === undefined && prompt !== undefined && response !== undefined) return { prompt, response };
    context.addIssue({
      code: "custom",
      message: 'must have either "text", or "prompt" and "response"',
      params: { rule: "text-or-response" },
    });
    return z.NEVER;
  });

/**
 * `astra-rl score`. A text of which the scorer reads only a part has `cut`. For {prompt, response} it scores the response; role-aware scorers also see the prompt. Failures
 * give {score: null, error} and exit code 1.
 */
export const scoreCommand = textCommand<z.output<typeof scoredRow>, { scorer: string; batchSize: number }>({
  name: "score",
  description: "Score texts or responses: one JSON line {score, labels?, cut?}",
  shape: '{"text": …} or {"prompt": …, "response": …}',
  row: scoredRow,
  unit: "text",
  options: [
    required(
      "--scorer <spec>",
      "the scorer: a kind such as detoxify, keyword:FILE.json, ./file.js#name, a YAML file, or {type: …}",
    ),
    batchSizeOption("texts per call to the scorer", 64),
  ],
  async *answer(rows, { scorer: spec, batchSize }, output) {
    const scorer = await makeScorer(await readScorerSpec(spec), { hub: downloadNotes(output) });
    let [failed, shortened] = [0, 0];
    try {
      for (const judge of judgesIn(scorer)) await judge.probe();
      for (let start = 0; start < rows.length; start += batchSize) {
        for (const outcome of await scorer.scoreAndValidate(rows.slice(start, start + batchSize))) {
          if (outcome.failure) {
            failed += 1;
            yield { score: null, error: outcome.failure.message };
          } else {
            const { score, labels, cut } = outcome;
            if (cut === true) shortened += 1;
            yield { score, ...(labels === undefined ? {} : { labels }), ...(cut === true ? { cut } : {}) };
          }
        }
      }
    } finally {
      scorer.dispose();
    }
    if (shortened > 0) {
      output.alert(
        `score: ${shortened} of ${rows.length} texts are longer than the scorer's window; only a part of them was scored`,
      );
    }
    if (failed > 0) throw new AstraError(`score: ${failed} of ${rows.length} texts could not be scored`);
  },
});

/** Parts are passed to the template unchanged, as in Python; a template that does not expect them prints the list. */
const parts = z.array(z.object({ type: z.literal("text"), text: z.string() }));

const encodedRow = z
  .object({
    text: z.string().optional(),
    messages: z
      .array(
        z.object({
          role: z.string(),
          content: z.union([z.string(), parts], "must be a string, or a list of parts {type: text, text}"),
        }),
      )
      .min(1)
      .optional(),
  })
  .refine(({ text, messages }) => (text === undefined) !== (messages === undefined), {
    error: 'must have either "text" or "messages"',
    params: { rule: "text-or-messages" },
  });

/**
 * `astra-rl encode`: texts with special tokens as in Python's `tokenizer(text)`; conversations as in
 * `apply_chat_template(messages, add_generation_prompt=True)`. Loads no weights.
 */
export const encodeCommand = textCommand<z.output<typeof encodedRow>, { model: string }>({
  name: "encode",
  description: "Token ids of texts or conversations: one JSON line {ids}",
  shape: '{"text": …} or {"messages": [{"role": …, "content": …}, …]}',
  row: encodedRow,
  unit: "line",
  options: [modelOption()],
  async *answer(rows, { model: name }, output) {
    const directory = await resolveCheckpoint(modelSource(name), downloadNotes(output));
    const tokenizer = await Tokenizer.load(directory);
    const template = ChatTemplate.of(tokenizer);
    if (template === null && rows.some(({ messages }) => messages !== undefined)) {
      throw new UsageError(
        "missing-chat-template",
        `${directory}: "messages" need a chat template, but neither chat_template.jinja nor tokenizer_config.json has one`,
      );
    }
    for (const { text, messages } of rows) {
      const ids =
        messages === undefined
          ? tokenizer.encode(text!, { addSpecialTokens: true })
          : // The template already contains the special tokens.
            tokenizer.encode(template!.render(messages, { addGenerationPrompt: true }));
      yield { ids };
    }
  },
});
