/**
 * Makes everything of the embedded world (packages/astra-rl/world) that is not written by hand, from a seed:
 *
 *   npx tsx packages/world/src/build.ts [--seed 1] [--steps 1500] [--only prompts,chatter,scorer]
 *
 * prompts/*.json (splits of the opening lines), chatter/ (tokenizer and language model), scorer/ (classifier and
 * its held-out examples) and manifest.json (checksums, seed, sizes and the engine that made them).
 */
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { saveCausalLM, Tokenizer } from "@astra-rl/lm";
import { dispose, engineInformation, writeSafetensors } from "@astra-rl/torch";
import { drawHeldOut } from "./labelled/draw.js";
import { SeededStream } from "./seeded-stream.js";
import { splitOpeningLines } from "./training/opening-lines.js";
import { CHATTER_SIZES, conversationText, trainChatter } from "./training/train-chatter.js";
import { SCORER_CONFIGURATION, trainScorer } from "./training/train-scorer.js";
import { END_OF_TEXT, trainTokenizer } from "./training/train-tokenizer.js";

const WORLD = fileURLToPath(new URL("../../astra-rl/world/", import.meta.url));
const VOCABULARY = 1536;
/** Conversations that the tokenizer learns from; the grammar's words are few, so these are plenty. */
const TOKENIZER_CONVERSATIONS = 20_000;

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    steps: { type: "string", default: "1500" },
    only: { type: "string", default: "prompts,chatter,scorer" },
  },
});
const seed = Number(values.seed);
const steps = Number(values.steps);
const parts = new Set(values.only.split(","));
const started = performance.now();
const log = (line: string) =>
  process.stdout.write(`[${((performance.now() - started) / 1000).toFixed(0)} s] ${line}\n`);

function random(name: string): () => number {
  const stream = new SeededStream(seed, `world/${name}`);
  return () => stream.uniform();
}

function writeJson(path: string, value: unknown, indent: number | undefined = 1): void {
  writeFileSync(join(WORLD, path), `${JSON.stringify(value, null, indent)}\n`);
}

const lines = splitOpeningLines(random("splits"));

if (parts.has("prompts")) {
  for (const split of ["train", "dev", "test"] as const) {
    const prompts = [...lines[split].values()].flat().map((line) => `${line}\n`);
    writeJson(`prompts/${split}.json`, prompts);
    log(`prompts/${split}.json: ${prompts.length} opening lines`);
  }
}

if (parts.has("chatter")) {
  const draw = random("tokenizer");
  const texts = Array.from({ length: TOKENIZER_CONVERSATIONS }, () => conversationText(draw, lines.train));
  const { tokenizer: definition } = trainTokenizer(texts, VOCABULARY);
  const encode = (value: unknown) => new TextEncoder().encode(`${JSON.stringify(value)}\n`);
  const tokenizer = Tokenizer.fromFiles(
    new Map([
      ["tokenizer.json", encode(definition)],
      [
        "tokenizer_config.json",
        encode({
          tokenizer_class: "PreTrainedTokenizerFast",
          bos_token: END_OF_TEXT,
          eos_token: END_OF_TEXT,
          unk_token: END_OF_TEXT,
          model_max_length: CHATTER_SIZES.contextLength,
          clean_up_tokenization_spaces: false,
        }),
      ],
    ]),
  );
  log(`tokenizer: ${tokenizer.vocabSize} tokens`);
  const model = trainChatter({ seed, steps, tokenizer, openingLines: lines.train, log });
  // Half precision is more than the weights of so short a training deserve, and halves the repository's size.
  const stored = model.copy("float16");
  await saveCausalLM(join(WORLD, "chatter"), stored, tokenizer);
  stored.dispose();
  model.dispose();
  log("chatter/ written");
}

if (parts.has("scorer")) {
  mkdirSync(join(WORLD, "scorer"), { recursive: true });
  const scorer = trainScorer(seed, log);
  writeSafetensors(join(WORLD, "scorer/scorer.safetensors"), { ...scorer });
  dispose(scorer);
  writeJson("scorer/scorer.json", SCORER_CONFIGURATION);
  const draw = random("held-out");
  const heldOut = [false, true].flatMap((unseen) =>
    Array.from({ length: 300 }, () => ({ ...drawHeldOut(draw, unseen), unseen })),
  );
  writeFileSync(
    join(WORLD, "scorer/held-out.jsonl"),
    heldOut.map((example) => `${JSON.stringify(example)}\n`).join(""),
  );
  log("scorer/ written");
}

const files: Record<string, { bytes: number; sha256: string }> = {};
for (const folder of ["prompts", "chatter", "scorer"]) {
  for (const name of readdirSync(join(WORLD, folder)).sort()) {
    const path = `${folder}/${name}`;
    const bytes = readFileSync(join(WORLD, path));
    files[path] = {
      bytes: statSync(join(WORLD, path)).size,
      sha256: createHash("sha256").update(bytes).digest("hex"),
    };
  }
}
const { libtorch } = engineInformation();
writeJson(
  "manifest.json",
  {
    version: 1,
    script: "packages/world/src/build.ts",
    seed,
    steps,
    libtorch,
    files,
  },
  2,
);
log("manifest.json written");
