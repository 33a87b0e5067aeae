import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Codec } from "../../src/format/codec.js";
import { Tokenizer } from "../../src/tokenizer.js";
import { goldenFamilies } from "../golden/families.js";
import { goldenFolder } from "../golden/gpt2.js";

export interface NamedCodec {
  name: string;
  tokenizer: Tokenizer;
  codec: Codec;
  /** The text that it reads for a given text; the text itself if it has ids for every text. */
  hears: ((text: string) => string) | null;
}

type Definition = Record<string, unknown>;

/** A golden tokenizer with some parts of its tokenizer.json replaced. */
export function varied(
  folder: string,
  change: (definition: Definition, settings: Definition) => void,
): Tokenizer {
  const files = new Map(
    readdirSync(folder)
      .filter((name) => name.startsWith("tokenizer"))
      .map((name) => [name, new Uint8Array(readFileSync(join(folder, name)))]),
  );
  const [definition, settings] = ["tokenizer.json", "tokenizer_config.json"].map((name) => {
    return JSON.parse(new TextDecoder().decode(files.get(name))) as Definition;
  }) as [Definition, Definition];
  change(definition, settings);
  files.set("tokenizer.json", new TextEncoder().encode(JSON.stringify(definition)));
  files.set("tokenizer_config.json", new TextEncoder().encode(JSON.stringify(settings)));
  return Tokenizer.fromFiles(files);
}

export const folderOf = (name: string) => goldenFamilies.find((family) => family.name === name)!.folder;

/** Adds the merge of two tokens to a BPE definition. */
function merge(definition: Definition, left: string, right: string): void {
  const model = definition["model"] as { vocab: Record<string, number>; merges: unknown[] };
  const ids = (definition["added_tokens"] as { id: number }[]).map(({ id }) => id);
  model.vocab[left + right] = Math.max(...ids, ...Object.values(model.vocab)) + 1;
  model.merges.unshift([left, right]);
}

/** The ways in which tokenizers of language models treat the beginning of texts. */
export async function namedCodecs(): Promise<NamedCodec[]> {
  const same = (text: string) => text;
  const nfc = (text: string) => text.normalize("NFC");
  const golden: [string, string, NamedCodec["hears"]][] = [
    ["GPT-2", goldenFolder, same],
    ["Llama 2", folderOf("llama2"), same],
    ["Llama 3", folderOf("llama32-new-spelling"), same],
    ["Mistral", folderOf("mistral"), same],
    ["Qwen", folderOf("qwen3"), same],
    ["Qwen with NFC", folderOf("qwen2-bos"), nfc],
    ["RoBERTa", folderOf("roberta"), same],
    ["unigram", folderOf("xlm-roberta"), null],
  ];
  const made: [string, Tokenizer, NamedCodec["hears"]][] = [
    [
      "bytes with a space in front",
      varied(goldenFolder, (definition) => {
        const own = definition["pre_tokenizer"] as Definition;
        definition["pre_tokenizer"] = { ...own, add_prefix_space: true };
      }),
      same,
    ],
    [
      "Metaspace in front of the first word", // Llama 2 and Mistral as converted without the "legacy" behaviour
      varied(folderOf("llama2"), (definition) => {
        definition["normalizer"] = null;
        const metaspace = { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: false };
        definition["pre_tokenizer"] = metaspace;
      }),
      same,
    ],
    [
      "runs of newlines", // Gemma: no prefix, spaces as ▁, tokens for several newlines
      varied(folderOf("mistral"), (definition) => {
        const { vocab } = definition["model"] as { vocab: Record<string, number> };
        vocab["\n"] = Object.keys(vocab).length;
        merge(definition, "\n", "\n");
        merge(definition, "\n\n", "\n");
      }),
      same,
    ],
  ];
  const loaded = await Promise.all(
    golden.map(async ([name, folder, hears]) => [name, await Tokenizer.load(folder), hears] as const),
  );
  return [...loaded, ...made].map(([name, tokenizer, hears]) => {
    return { name, tokenizer, codec: Codec.of(tokenizer), hears };
  });
}
