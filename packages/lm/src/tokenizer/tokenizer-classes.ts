// The tokenizer classes of `transformers` 5. Some use only vocabulary, merges and tokens of tokenizer.json and
// configure everything else themselves, from tokenizer_config.json: the ones that our model families need are
// reproduced here.
import { describeValue, UsageError } from "@astra-rl/base";
import type { AddedToken } from "./added-tokens.js";
import type { SettingsFiles } from "./settings.js";
import { QWEN2_PATTERN } from "./pattern.js";

export type Json = Readonly<Record<string, unknown>>;

/** A Python class, and what names it, for messages. The class "" uses tokenizer.json unchanged. */
export interface NamedClass {
  className: string;
  namedBy: string;
}

/**
 * By "model_type" of config.json: for folders that name no class; "" uses tokenizer.json unchanged, for any class they
 * name (mistral, ministral3: without Mistral's own package).
 */
export const CLASSES: Readonly<Record<string, string>> = {
  bert: "BertTokenizer",
  distilbert: "BertTokenizer",
  gemma3: "GemmaTokenizer",
  gemma3_text: "GemmaTokenizer",
  glm4: "",
  gpt2: "GPT2Tokenizer",
  gpt_neox: "GPTNeoXTokenizer",
  granite: "",
  ministral3: "",
  mistral: "",
  mistral3: "",
  olmo2: "",
  olmo3: "",
  phi3: "",
  qwen2: "Qwen2Tokenizer",
  qwen3: "Qwen2Tokenizer",
  roberta: "RobertaTokenizer",
  "xlm-roberta": "XLMRobertaTokenizer",
};

/** Kinds of models whose folders are known to name wrong classes: that of the model type is used. */
export const MISNAMED: ReadonlySet<unknown> = new Set(["qwen2"]);

/** Classes that configure the tokenizer in their own code, or are not fast tokenizers. */
export const UNSUPPORTED_CLASSES: ReadonlySet<string> = new Set(
  (
    "Albert Barthez Bartpho BertGeneration BertJapanese Bertweet BigBird BioGpt Blenderbot BlenderbotSmall ByT5 CLIP CTRL " +
    "Camembert Canine Clvp CodeGen CodeLlama Cohere ConvBert Cpm CpmAnt DPRContextEncoder DPRQuestionEncoder DPRReader " +
    "Deberta DebertaV2 Dia Esm Esmc FNet FSMT FastSpeech2Conformer Flaubert Funnel GPTNeoXJapanese GPTSw3 " +
    "Herbert Lasr LayoutLMv2 LayoutLMv3 LayoutXLM Luke M2M100 MBart MBart50 MLuke MPNet Marian MarkupLM " +
    "Mgpstr MyT5 Nllb Nougat OpenAIGPT PLBart Pegasus Perceiver Phobert Pop2Piano ProphetNet Qwen3_5 Rag Reformer " +
    "RemBert RoCBert RoFormer SeamlessM4T Siglip Siglip2 Speech2Text SpeechT5 Splinter T5 Tapas Tipsv2 Udop " +
    "VideoPrism Vits Wav2Vec2CTC Wav2Vec2PhonemeCTC Whisper XGLM XLM XLNet"
  )
    .split(" ")
    .map((name) => `${name}Tokenizer`),
);

const ROBERTA = {
  bos_token: "<s>",
  eos_token: "</s>",
  sep_token: "</s>",
  cls_token: "<s>",
  unk_token: "<unk>",
  pad_token: "<pad>",
  mask_token: "<mask>",
};
const END = "<|endoftext|>";

interface Rebuilder {
  model: "BPE" | "WordPiece" | "Unigram";
  vocabularyFiles: readonly string[];
  defaults: Readonly<Record<string, string>>;
  /** Parts of tokenizer.json; those of the model are added to its vocabulary and merges. */
  rebuild(from: Given): { model?: Json } & Json;
}

/** The inputs from which a class rebuilds a tokenizer. */
interface Given {
  /** Whether the definition is that of a tokenizer.json, rather than made of other files. */
  isFile: boolean;
  definition: Json;
  settings: Json;
  token: (name: string) => string;
  flag: (name: string, fallback: boolean) => boolean;
}

const byteLevel = (addPrefixSpace: boolean, useRegex = true) => ({
  type: "ByteLevel",
  add_prefix_space: addPrefixSpace,
  trim_offsets: true,
  use_regex: useRegex,
});

/** [before] $A [behind], by token text, null for none; ids are resolved after the tokens are added. */
const around = (before: string | null, behind: string | null) => ({ [AROUND]: [before, behind] });
export const AROUND = Symbol("tokens around a text");

/** A class with byte-level BPE. @param parts its other parts */
const byteLevelBpe = (
  defaults: Rebuilder["defaults"],
  parts: (from: Given) => Json = () => ({}),
): Rebuilder => ({
  model: "BPE",
  vocabularyFiles: ["vocab.json", "merges.txt"],
  defaults,
  rebuild: (from) => ({
    normalizer: null,
    pre_tokenizer: byteLevel(from.flag("add_prefix_space", false)),
    decoder: byteLevel(true),
    ...(from.isFile ? {} : { post_processor: asAsked(from) }),
    ...parts(from),
  }),
});

/**
 * The tokens around a text requested by tokenizer_config.json, which Python reads only if there is no tokenizer.json.
 */
function asAsked({ flag, token, isFile }: Given): unknown {
  const asked = (flagName: string, name: string) => (!isFile && flag(flagName, false) ? token(name) : null);
  return around(asked("add_bos_token", "bos_token"), asked("add_eos_token", "eos_token"));
}

/** Of BPE made from SentencePiece models. */
const SENTENCEPIECE_DECODERS: readonly Json[] = [
  { type: "Replace", pattern: { String: "▁" }, content: " " },
  { type: "ByteFallback" },
  { type: "Fuse" },
];

const bert: Rebuilder = {
  model: "WordPiece",
  vocabularyFiles: ["vocab.txt"],
  defaults: {
    unk_token: "[UNK]",
    sep_token: "[SEP]",
    pad_token: "[PAD]",
    cls_token: "[CLS]",
    mask_token: "[MASK]",
  },
  rebuild: ({ token, flag, settings }) => ({
    model: {
      unk_token: token("unk_token"),
      continuing_subword_prefix: "##",
      max_input_chars_per_word: 100,
    },
    normalizer: {
      type: "BertNormalizer",
      clean_text: true,
      handle_chinese_chars: flag("tokenize_chinese_chars", true),
      strip_accents: settings["strip_accents"] ?? null,
      lowercase: flag("do_lower_case", true),
    },
    pre_tokenizer: { type: "BertPreTokenizer" },
    decoder: { type: "WordPiece", prefix: "##", cleanup: true },
    post_processor: around(token("cls_token"), token("sep_token")),
  }),
};

const roberta = byteLevelBpe(ROBERTA, ({ token }) => ({
  post_processor: around(token("cls_token"), token("sep_token")),
}));

const REBUILDERS: Readonly<Record<string, Rebuilder>> = {
  BertTokenizer: bert,
  DistilBertTokenizer: bert,
  MobileBertTokenizer: bert,
  SqueezeBertTokenizer: bert,
  RobertaTokenizer: roberta,
  BartTokenizer: roberta,
  GPT2Tokenizer: byteLevelBpe({ unk_token: END, bos_token: END, eos_token: END }),
  GPTNeoXTokenizer: byteLevelBpe(
    { unk_token: END, bos_token: END, eos_token: END, pad_token: "<|padding|>" },
    // The only class that ignores the post-processor of tokenizer.json.
    (from) => ({ normalizer: { type: "NFC" }, post_processor: asAsked(from) }),
  ),
  Qwen2Tokenizer: byteLevelBpe({ unk_token: END, eos_token: END, pad_token: END }, ({ flag }) => ({
    normalizer: { type: "NFC" },
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex: QWEN2_PATTERN }, behavior: "Isolated", invert: false },
        byteLevel(flag("add_prefix_space", false), false),
      ],
    },
  })),
  LlamaTokenizer: {
    model: "BPE",
    vocabularyFiles: [],
    defaults: { unk_token: "<unk>", bos_token: "<s>", eos_token: "</s>" },
    rebuild: ({ flag }) => {
      const addPrefixSpace = flag("add_prefix_space", true);
      const scheme = addPrefixSpace ? (flag("legacy", false) ? "always" : "first") : "never";
      const strip = addPrefixSpace ? [{ type: "Strip", content: " ", start: 1, stop: 0 }] : [];
      return {
        model: { fuse_unk: true, byte_fallback: true },
        normalizer: null,
        pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: scheme, split: false },
        decoder: { type: "Sequence", decoders: [...SENTENCEPIECE_DECODERS, ...strip] },
      };
    },
  },
  GemmaTokenizer: {
    model: "BPE",
    vocabularyFiles: [],
    defaults: {
      unk_token: "<unk>",
      bos_token: "<bos>",
      eos_token: "<eos>",
      pad_token: "<pad>",
      mask_token: "<mask>",
    },
    rebuild: ({ token }) => ({
      model: { unk_token: token("unk_token"), fuse_unk: true, byte_fallback: true },
      normalizer: { type: "Replace", pattern: { String: " " }, content: "▁" },
      pre_tokenizer: {
        type: "Split",
        pattern: { String: " " },
        behavior: "MergedWithPrevious",
        invert: false,
      },
      decoder: { type: "Sequence", decoders: SENTENCEPIECE_DECODERS },
    }),
  },
  XLMRobertaTokenizer: {
    model: "Unigram",
    vocabularyFiles: ["sentencepiece.bpe.model"],
    defaults: ROBERTA,
    rebuild: ({ definition, token, flag }) => {
      const scheme = flag("add_prefix_space", true) ? "always" : "never";
      const metaspace = { type: "Metaspace", replacement: "▁", prepend_scheme: scheme, split: true };
      return {
        // The class always uses the fourth token as the unknown token, regardless of the file.
        model: { unk_id: 3, byte_fallback: false },
        normalizer: precompiledOf(definition["normalizer"]),
        pre_tokenizer: { type: "Sequence", pretokenizers: [{ type: "WhitespaceSplit" }, metaspace] },
        decoder: metaspace,
        post_processor: around(token("bos_token"), token("eos_token")),
      };
    },
  },
};

function rebuilderOf(className: string): Rebuilder | undefined {
  return Object.hasOwn(REBUILDERS, className) ? REBUILDERS[className] : undefined;
}

/** The files from which a class builds its vocabulary if there is no tokenizer.json; [] for classes that need it. */
export function vocabularyFilesOf(className: string): readonly string[] {
  return rebuilderOf(className)?.vocabularyFiles ?? [];
}

/** Default special tokens of a class, used if no file defines any. */
export function defaultsOf(className: string): Readonly<Record<string, string>> {
  return rebuilderOf(className)?.defaults ?? {};
}

/** tokenizer.json as rebuilt by a class; null if the class uses it unchanged. */
export function rebuilt(
  chosen: NamedClass,
  {
    definition,
    isFile,
    settings,
    place,
  }: Pick<SettingsFiles, "definition" | "isFile" | "settings" | "place">,
  named: ReadonlyMap<string, AddedToken>,
): Json | null {
  const rebuilder = rebuilderOf(chosen.className);
  if (rebuilder === undefined) return null;
  const refuse = (why: string) => contradiction(place("tokenizer.json"), why, chosen);
  const model = definition["model"];
  if (typeof model !== "object" || model === null) throw refuse(`"model" is ${describeValue(model)}`);
  const { type, vocab, merges } = model as Record<string, unknown>;
  if (
    (type !== undefined && type !== rebuilder.model) ||
    Array.isArray(vocab) !== (rebuilder.model === "Unigram")
  ) {
    throw refuse(`the model is not ${rebuilder.model}`);
  }
  const flag = (name: string, fallback: boolean) => {
    const value = settings[name] ?? fallback;
    if (typeof value === "boolean") return value;
    throw refuse(
      `${JSON.stringify(name)} of tokenizer_config.json is ${describeValue(value)}, neither true nor false`,
    );
  };
  const token = (name: string) => {
    const found = named.get(name);
    if (found === undefined) throw refuse(`tokenizer_config.json sets ${JSON.stringify(name)} to nothing`);
    return found.content;
  };
  const { model: settled, ...parts } = rebuilder.rebuild({ definition, isFile, settings, token, flag });
  if (isFile && isByteLevel(definition) !== isByteLevel(parts)) {
    const [file, ours] = isByteLevel(definition) ? ["bytes", "characters"] : ["characters", "bytes"];
    throw refuse(`its tokens consist of ${file}, but that class expects ${ours}`);
  }
  const pairs = rebuilder.model === "BPE" ? { merges } : {};
  const rebuiltModel = { type: rebuilder.model, vocab, ...pairs, ...settled };
  return { ...definition, model: rebuiltModel, ...parts, added_tokens: [] };
}

/** An error about a tokenizer.json that does not fit the class that rebuilds it. */
export function contradiction(place: string, why: string, { className, namedBy }: NamedClass): UsageError {
  return new UsageError(
    "tokenizer-class-mismatch",
    `${place}: does not fit the class ${className}, which Python selects because of ${namedBy}: ${why}; ` +
      (namedBy.startsWith('"tokenizer_class"')
        ? `set it to "PreTrainedTokenizerFast" to take tokenizer.json as it is`
        : `use the tokenizer that the model was trained with`),
  );
}

/** Whether a tokenizer.json, or parts of one, have tokens spelled in the 256 characters that stand for bytes. */
function isByteLevel({ normalizer, pre_tokenizer: preTokenizer, decoder }: Json): boolean {
  return JSON.stringify([normalizer, preTokenizer, decoder]).includes('"type":"ByteLevel"');
}

function precompiledOf(normalizer: unknown): unknown {
  if (typeof normalizer !== "object" || normalizer === null) return null;
  const { type, normalizers } = normalizer as { type?: unknown; normalizers?: unknown };
  const all: unknown[] = type === "Sequence" && Array.isArray(normalizers) ? normalizers : [normalizer];
  return all.find((one) => (one as { type?: unknown } | null)?.type === "Precompiled") ?? null;
}
