import { UsageError, dotted, mistakesError } from "@astra-rl/base";
import {
  Document,
  isAlias,
  isMap,
  isNode,
  isPair,
  LineCounter,
  parseDocument,
  visit,
  type Alias,
  type YAMLError,
  type YAMLMap,
} from "yaml";
import { applyOverrides, overrideOf, type Override } from "./override.js";
import { excessOf } from "./yaml-bounds.js";

type At = (offset: number) => string;

/** A parsed configuration: its values with overrides applied, and the source position of each. */
export class Source {
  private constructor(
    readonly content: Record<string, unknown>,
    readonly overrides: readonly Override[],
    readonly document: Document,
    readonly at: At,
  ) {}

  /**
   * @param path prefix of messages, before line and column
   * @param where prefix of messages without a file
   * @throws UsageError for text that is not YAML, or that does not consist of sections
   */
  static ofFile(text: string, path: string, overrides: readonly Override[], where?: string): Source {
    const { document, at } = parseYaml(text, path, where);
    const content = document.contents === null ? {} : plainValue(document, document, at);
    if ((document.contents !== null && !isMap(document.contents)) || typeof content !== "object") {
      throw new UsageError(
        "no-sections",
        `${at(0)}: must contain sections such as "models:", got ${shown(content)}`,
      );
    }
    applyOverrides(content as Record<string, unknown>, overrides);
    return new Source(content as Record<string, unknown>, overrides, document, at);
  }

  /**
   * Parses one section, either alone in the text or under its name.
   *
   * @param where prefix of messages for text that is not in a file
   */
  static ofSection(name: string, text: string, path: string, where?: string): Source {
    const { document, at } = parseYaml(text, path, where);
    const { contents } = document;
    const inner = isMap(contents) && !contents.has("type") ? contents.get(name, true) : contents;
    if (!isMap(inner)) {
      const got = shown(plainValue(document, document, at));
      throw new UsageError("missing-section", `${at(0)}: must contain a ${name} with its type, got ${got}`);
    }
    const content = { [name]: plainValue(inner, document, at) };
    // Nests the same nodes one level deeper; they keep their positions.
    const around = new Document({});
    (around.contents as unknown as YAMLMap).set(name, inner);
    return new Source(content, [], around, at);
  }

  /** file:line:column of a value, or of the nearest existing section; or the --set option that set it. */
  place(path: readonly PropertyKey[], isKey = false, hidesValue = false): string {
    const override = overrideOf(path, this.overrides);
    // What follows "=" is the value.
    if (override !== undefined) return hidesValue ? override.where.split("=", 1)[0]! : override.where;
    for (let length = path.length; length > 0; length -= 1) {
      const outer = path.slice(0, length - 1);
      const parent: unknown = length === 1 ? this.document.contents : this.document.getIn(outer, true);
      const pair = isMap(parent)
        ? parent.items.find(
            (item) => isPair(item) && isNode(item.key) && item.key.toJS(this.document) === path[length - 1],
          )
        : undefined;
      const value: unknown = pair?.value ?? this.document.getIn(path.slice(0, length), true);
      // Unknown keys and missing children are reported at the key, wrong values at the value.
      const isExact =
        pair === undefined || (length === path.length && !isKey && isNode(value) && value.range);
      const node = isExact ? value : pair.key;
      if (isNode(node) && node.range) return this.at(node.range[0]);
    }
    return this.at(0);
  }

  /** An error about the value at a path. */
  mistake(rule: string, path: readonly PropertyKey[], sentence: string, cause?: unknown): UsageError {
    return new UsageError(rule, `${this.place(path)}: ${dotted(path)}: ${sentence}`, { cause });
  }
}

function parseYaml(text: string, path: string, where?: string): { document: Document; at: At } {
  const lines = new LineCounter();
  const at = (offset: number) => {
    if (where !== undefined) return where;
    const { line, col } = lines.linePos(offset);
    return `${path}:${Math.max(line, 1)}:${Math.max(col, 1)}`;
  };
  const excess = excessOf(text);
  if (excess !== null) throw new UsageError("excessive-yaml", `${at(0)}: ${excess}`);
  // Not "silent", which ignores further documents without an error.
  const parsed = parseDocument(text, { lineCounter: lines, prettyErrors: false, logLevel: "error" });
  const document = parsed as Document;
  // If tabs are used for indentation, all other errors follow from that.
  const tabs = parsed.errors.filter(({ code }) => code === "TAB_AS_INDENT");
  const errors = tabs.length > 0 ? tabs.slice(0, 1) : parsed.errors;
  const mistakes = [
    ...errors.map((error) => ({
      rule: "not-yaml",
      tell: () => `${at(error.pos[0])}: ${yamlProblem(error)}`,
    })),
    ...(errors.length > 0 ? [] : unknownAliases(document)).map(({ source, range }) => {
      const [alias, anchor] = [`*${source}`, `&${source}`].map((each) => JSON.stringify(each));
      const tell = () =>
        `${at(range![0])}: the alias ${alias} has no anchor ${anchor} before it; quote it if it is meant as text`;
      return { rule: "unknown-alias", tell };
    }),
  ];
  if (mistakes.length > 0) throw mistakesError(mistakes);
  return { document, at };
}

/** Describes a YAML syntax error. */
function yamlProblem({ code, message }: YAMLError): string {
  if (code === "TAB_AS_INDENT") return "this line is indented with a tab; indent with spaces throughout";
  if (code !== "MULTIPLE_DOCS") return message.split("\n")[0]!;
  return 'starts a second document, but a configuration is a single one; delete the line "---" or what follows it';
}

/** Aliases without a preceding anchor. */
function unknownAliases(document: Document): Alias[] {
  const anchors = new Set<string>();
  const unknown: Alias[] = [];
  visit(document, {
    Alias: (_, alias) => {
      if (!anchors.has(alias.source)) unknown.push(alias);
    },
    Node: (_, node) => {
      if (!isAlias(node) && node.anchor !== undefined) anchors.add(node.anchor);
    },
  });
  return unknown;
}

/** @throws UsageError for aliases that expand excessively ("billion laughs") */
function plainValue(node: Document | YAMLMap, document: Document, at: At): unknown {
  try {
    const limit = { maxAliasCount: 100 };
    return isMap(node) ? (node.toJS(document, limit) as unknown) : (document.toJS(limit) as unknown);
  } catch (cause) {
    throw new UsageError("not-yaml", `${at(0)}: ${(cause as Error).message.split("\n")[0]}`, { cause });
  }
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}
