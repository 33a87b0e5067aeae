// Effects of tokenizer_config.json, special_tokens_map.json and added_tokens.json, as in `transformers` 5
// (docs/decisions/0060). Must not know: texts.
import { basename } from "node:path";
import { describeValue, UsageError } from "@astra-rl/base";
import { isCount, isObject, JsonFields } from "../json-fields.js";
import { readAddedToken, type AddedToken } from "./added-tokens.js";
import {
  CLASSES,
  defaultsOf,
  MISNAMED,
  rebuilt,
  UNSUPPORTED_CLASSES,
  type Json,
  type NamedClass,
} from "./tokenizer-classes.js";

/** The files next to tokenizer.json; null if absent. */
export interface SettingsFiles {
  /** Start of error messages about a file. */
  place: (file: string) => string;
  definition: Json;
  /** Whether the definition is that of a tokenizer.json, rather than made of other files. */
  isFile: boolean;
  settings: Json;
  specialTokensMap: Json | null;
  addedTokens: Json | null;
  /** config.json: also determines the class. */
  model: Json | null;
}

export interface Settings {
  /** tokenizer.json as rebuilt by the tokenizer's class. */
  definition: Json;
  /** Tokens to add, in this order, after those listed in tokenizer.json. */
  tokens: AddedToken[];
  /** bos_token and so on, by name. */
  named: ReadonlyMap<string, string>;
  splitSpecialTokens: boolean;
  cleanUpSpaces: boolean;
  /** The class that has rebuilt the tokenizer; null if tokenizer.json is used as it is. */
  rebuiltBy: NamedClass | null;
}

const NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

export function readSettings(files: SettingsFiles): Settings {
  const { place, definition, settings } = files;
  const where = place("tokenizer_config.json");
  const fields = new JsonFields(settings, where);
  const chosen = classOf(files);
  const { className } = chosen;
  const values = new Map(Object.entries(settings));

  // Tokens with flags, by id and by text.
  const byId = new Map<number, AddedToken>();
  const add = (id: unknown, token: AddedToken, from: string) => {
    if (!isCount(id)) {
      throw new UsageError(
        "missing-token-id",
        `${from}: an added token must have an id, got ${describeValue(id)}`,
      );
    }
    byId.set(id, token);
  };
  const namedExtra = isObject(settings["extra_special_tokens"]) ? settings["extra_special_tokens"] : {};
  let extra = listed(fields, "extra_special_tokens");
  if (extra.length === 0 && Object.keys(namedExtra).length === 0)
    extra = listed(fields, "additional_special_tokens");
  if (fields.has("added_tokens_decoder")) {
    for (const [id, token] of Object.entries(fields.object("added_tokens_decoder"))) {
      const from = `${fields.inside("added_tokens_decoder")}[${JSON.stringify(id)}]`;
      add(Number(id), readAddedToken(token, from, isObject(token) ? {} : { special: true }), from);
    }
  } else {
    const map = new JsonFields(files.specialTokensMap ?? {}, place("special_tokens_map.json"));
    for (const [name, value] of Object.entries(map.values)) {
      if (name === "additional_special_tokens" || name === "extra_special_tokens") {
        // Python uses "additional_special_tokens" of this file only if there are no others.
        if (Array.isArray(value) && (name === "extra_special_tokens" || extra.length === 0))
          extra = [...extra, ...(value as unknown[])];
      } else {
        values.set(name, isObject(value) ? { ...value, special: true } : value);
      }
    }
    const from = place("added_tokens.json");
    for (const [content, id] of Object.entries(files.addedTokens ?? {})) {
      const special = [...NAMES.map((name) => values.get(name)), ...extra].some(
        (token) => (isObject(token) ? token["content"] : token) === content,
      );
      add(id, readAddedToken(content, from, { special }), from);
    }
    const own = definition["added_tokens"];
    for (const value of Array.isArray(own) ? (own as unknown[]) : []) {
      const listPlace = `${place("tokenizer.json")}: "added_tokens"`;
      const token = readAddedToken(value, listPlace);
      add(isObject(value) ? value["id"] : undefined, token, listPlace);
    }
  }
  const bySpelling = new Map([...byId.values()].map((token) => [token.content, token]));

  const named = new Map<string, AddedToken>();
  const name = (key: string, value: unknown) => {
    if (value === null || value === undefined) return;
    const token = readAddedToken(value, `${where}: ${JSON.stringify(key)}`);
    if (token.content === "") return;
    named.set(key, NAMES.includes(key) ? (bySpelling.get(token.content) ?? token) : token);
  };
  const defaults = defaultsOf(className);
  for (const key of NAMES) name(key, values.has(key) ? values.get(key) : defaults[key]);
  // Model-specific names, such as "image_token".
  for (const [key, value] of values) {
    if (!NAMES.includes(key) && key.endsWith("_token") && typeof value === "string") name(key, value);
  }
  for (const [key, value] of Object.entries(namedExtra)) name(key, value);

  // Listed tokens with their flags first; then named and extra tokens that are not listed. Named tokens are special.
  const namedSpellings = new Set([...named.values()].map(({ content }) => content));
  const rebuild = rebuilt(chosen, files, named);
  const fromFile = rebuild === null ? readListed(definition, place("tokenizer.json")) : [];
  const present = new Set(fromFile.map(({ content }) => content));
  const tokens: AddedToken[] = [];
  for (const [, token] of [...byId].sort(([one], [other]) => one - other)) {
    tokens.push(namedSpellings.has(token.content) ? { ...token, special: true } : token);
    present.add(token.content);
  }
  const extraTokens = extra.map((token) => readAddedToken(token, `${where}: an extra special token`));
  for (const token of [...named.values(), ...extraTokens]) {
    if (present.has(token.content)) continue;
    present.add(token.content);
    tokens.push(namedSpellings.has(token.content) ? { ...token, special: true } : token);
  }
  if (className === "Qwen2Tokenizer") {
    for (const { content } of [...named.values(), ...extraTokens])
      tokens.push(readAddedToken(content, where));
  }

  return {
    definition: rebuild ?? definition,
    tokens,
    named: new Map([...named].map(([key, { content }]) => [key, content])),
    splitSpecialTokens: fields.boolean("split_special_tokens", { fallback: false }),
    cleanUpSpaces: fields.boolean("clean_up_tokenization_spaces", { fallback: false }),
    rebuiltBy: rebuild && chosen,
  };
}

/** "added_tokens" of tokenizer.json. */
export function readListed(definition: Json, place: string): AddedToken[] {
  const fields = new JsonFields(definition, place);
  return fields
    .list("added_tokens", { fallback: [] })
    .map((value) => readAddedToken(value, fields.inside("added_tokens")));
}

/** The Python class that would load the folder. */
export function classOf({
  settings,
  model,
  place,
}: Pick<SettingsFiles, "settings" | "model" | "place">): NamedClass {
  const where = place("tokenizer_config.json");
  const autoMap = settings["auto_map"];
  const code = isObject(autoMap) ? autoMap["AutoTokenizer"] : autoMap;
  if (code !== undefined && code !== null) {
    throw new UsageError(
      "custom-code",
      `${where}: "auto_map" is ${describeValue(autoMap)}: this tokenizer is the checkpoint's own Python code, ` +
        `which cannot be run here; use a checkpoint without it, or tokenize in Python`,
    );
  }
  const type = model?.["model_type"];
  const registered = typeof type === "string" && Object.hasOwn(CLASSES, type) ? CLASSES[type]! : null;
  const ofModel = { className: registered ?? "", namedBy: `"model_type" of config.json` };
  const own = new JsonFields(settings, where);
  const given =
    own.string("tokenizer_class", { fallback: null }) ??
    new JsonFields(model ?? {}, place("config.json")).string("tokenizer_class", { fallback: null });
  if (given === null || registered === "" || MISNAMED.has(type)) return ofModel;
  const from = own.has("tokenizer_class") ? where : place("config.json");
  const className = given.replace(/Fast$/, "");
  if (UNSUPPORTED_CLASSES.has(className)) {
    throw new UsageError(
      "unsupported-tokenizer-class",
      `${from}: "tokenizer_class" is ${describeValue(given)}: Python rebuilds such a tokenizer with code that is not ` +
        `available here, so the ids might differ from Python's; load it in Python, write its \`backend_tokenizer\` to ` +
        `tokenizer.json, and set "tokenizer_class" to "PreTrainedTokenizerFast"`,
    );
  }
  return { className, namedBy: `"tokenizer_class" of ${basename(from)}` };
}

/** The tokens in a list; none if the field is absent, null or an object of named tokens. */
function listed(fields: JsonFields, name: string): readonly unknown[] {
  return isObject(fields.values[name]) ? [] : fields.list(name, { fallback: [] });
}
