/**
 * Jinja's lexer with the settings that transformers renders chat templates with: trim_blocks (the newline after a block
 * is removed), lstrip_blocks (white space before a block at the start of a line is removed), no trailing newline.
 */
import { SPACE } from "./python-text.js";
import { TemplateError, Unsupported } from "./values.js";

export interface Token {
  /** An operator is its own type. */
  readonly type: string;
  readonly value: string;
  /** Line of the source, from 1. */
  readonly line: number;
}

/** The source is not a valid template: where and why. */
export class SyntaxProblem extends TemplateError {
  constructor(rule: string, line: number) {
    super(`line ${line}: ${rule}`);
  }
}

const sticky = (source: string) => new RegExp(source, "uy");
const trailing = new RegExp(`${SPACE}+$`, "u");
const leading = sticky(`${SPACE}*`);
const RAW_BEGIN = sticky(`\\{%([-+]?)${SPACE}*raw${SPACE}*(?:-%\\}${SPACE}*|%\\})`);
const RAW_END = new RegExp(`\\{%([-+]?)${SPACE}*endraw${SPACE}*(?:\\+%\\}|-%\\}${SPACE}*|%\\}\\n?)`, "gu");
const BLOCK_END = sticky(`\\+%\\}|-%\\}${SPACE}*|%\\}\\n?`);
const VARIABLE_END = sticky(`-\\}\\}${SPACE}*|\\}\\}`);
const WHITE = sticky(`${SPACE}+`);
const FLOAT = sticky(
  "(?<!\\.)(?:\\d+_)*\\d+(?:(?:\\.(?:\\d+_)*\\d+)?[eE][+-]?(?:\\d+_)*\\d+|\\.(?:\\d+_)*\\d+)",
);
const INTEGER = sticky(
  "0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[\\da-fA-F])+|[1-9](?:_?\\d)*|0(?:_?0)*",
);
const NAME = sticky("[\\p{L}\\p{N}_]+");
const STRING = sticky("'[^'\\\\]*(?:\\\\[^][^'\\\\]*)*'|\"[^\"\\\\]*(?:\\\\[^][^\"\\\\]*)*\"");
const OPERATOR = sticky("\\*\\*|//|==|!=|>=|<=|[-+/*%~[\\](){}><=.:|,;]");
const CLOSING: Readonly<Record<string, string>> = { "{": "}", "(": ")", "[": "]" };

export function tokenize(given: string): Token[] {
  let source = given.replace(/\r\n?/g, "\n");
  if (source.endsWith("\n")) source = source.slice(0, -1);
  return new Lexer(source).tokens();
}

class Lexer {
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;
  /** The source before #counted has been counted in #line. */
  #counted = 0;
  /** Whether the last token ended a line; also true at the start. */
  #startsLine = true;

  constructor(private readonly source: string) {}

  tokens(): Token[] {
    while (this.#at < this.source.length) this.#text();
    this.#push("end", "");
    return this.#tokens;
  }

  #push(type: string, value: string): void {
    for (; this.#counted < this.#at; this.#counted++) if (this.source[this.#counted] === "\n") this.#line++;
    this.#tokens.push({ type, value, line: this.#line });
  }

  #fail(rule: string): never {
    this.#push("end", "");
    throw new SyntaxProblem(rule, this.#line);
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    return pattern.exec(this.source);
  }

  /** Advances past a match. */
  #pass(match: string): void {
    this.#at += match.length;
    if (match !== "") this.#startsLine = match.endsWith("\n");
  }

  /** Text up to the next tag, and the tag. */
  #text(): void {
    const { source } = this;
    const begin = this.#at;
    let tag = begin;
    for (; ; tag++) {
      tag = source.indexOf("{", tag);
      if (tag < 0 || "%{#".includes(source[tag + 1] ?? " ")) break;
    }
    if (tag < 0) {
      this.#data(source.slice(begin));
      this.#at = source.length;
      return;
    }
    this.#at = tag;
    const kind = source[tag + 1]!;
    const raw = kind === "%" ? this.#match(RAW_BEGIN) : null;
    const sign = raw?.[1] ?? /[-+]?/.exec(source.slice(tag + 2, tag + 3))![0];
    this.#data(this.#before(source.slice(begin, tag), sign, kind !== "{"));
    this.#pass(raw?.[0] ?? source.slice(tag, tag + 2 + sign.length));
    if (raw !== null) return this.#raw();
    if (kind === "#") return this.#comment();
    this.#tag(kind === "%" ? "block" : "variable");
  }

  #data(text: string): void {
    if (text !== "") this.#push("data", text);
  }

  /** The text before a tag after trimming. */
  #before(text: string, sign: string, isBlock: boolean): string {
    if (sign === "-") return text.replace(trailing, "");
    if (sign === "+" || !isBlock) return text;
    const line = text.lastIndexOf("\n") + 1;
    if (line === 0 && !this.#startsLine) return text;
    leading.lastIndex = line;
    return line + leading.exec(text)![0].length === text.length ? text.slice(0, line) : text;
  }

  #raw(): void {
    RAW_END.lastIndex = this.#at;
    const end = RAW_END.exec(this.source);
    if (end === null) this.#fail("Missing end of raw directive");
    const text = this.source.slice(this.#at, end.index);
    this.#data(this.#before(text, end[1]!, true));
    this.#at = end.index;
    this.#pass(end[0]);
  }

  #comment(): void {
    const end = this.source.indexOf("#}", this.#at);
    if (end < 0) this.#fail("Missing end of comment tag");
    const sign = end > this.#at ? this.source[end - 1] : "";
    this.#at = end;
    this.#pass("#}");
    if (sign === "-") this.#pass(this.#match(leading)![0]);
    else if (sign !== "+" && this.source[this.#at] === "\n") this.#pass("\n");
  }

  #tag(kind: "block" | "variable"): void {
    this.#push(`${kind} begin`, "");
    const end = kind === "block" ? BLOCK_END : VARIABLE_END;
    const open: string[] = [];
    while (this.#at < this.source.length) {
      const ending = open.length === 0 ? this.#match(end) : null;
      if (ending !== null) {
        this.#push(`${kind} end`, ending[0]);
        return this.#pass(ending[0]);
      }
      this.#inTag(open);
    }
    this.#fail(
      open.length > 0 ? `unclosed '${open.at(-1)}'` : `unexpected end of template, expected end of ${kind}`,
    );
  }

  #inTag(open: string[]): void {
    const white = this.#match(WHITE);
    if (white !== null) return this.#pass(white[0]);
    for (const [type, pattern] of [
      ["float", FLOAT],
      ["integer", INTEGER],
      ["name", NAME],
      ["string", STRING],
    ] as const) {
      const match = this.#match(pattern)?.[0];
      if (match === undefined) continue;
      if (type === "name" && !/^[\p{XID_Start}_]\p{XID_Continue}*$/u.test(match))
        this.#fail(`invalid name '${match}'`);
      this.#push(type, type === "string" ? this.#unescaped(match.slice(1, -1)) : match);
      return this.#pass(match);
    }
    const operator = this.#match(OPERATOR)?.[0];
    if (operator === undefined)
      this.#fail(`unexpected char '${String.fromCodePoint(this.source.codePointAt(this.#at)!)}'`);
    if (operator in CLOSING) open.push(operator);
    else if (")]}".includes(operator)) {
      const opened = open.pop();
      if (opened === undefined) this.#fail(`unexpected '${operator}'`);
      if (CLOSING[opened] !== operator) this.#fail(`unexpected '${operator}', expected '${CLOSING[opened]}'`);
    }
    this.#push(operator, operator);
    this.#pass(operator);
  }

  /** Python's escapes in a string. */
  #unescaped(body: string): string {
    if (!body.includes("\\")) return body;
    return body.replace(
      /\\(?:x([^]{0,2})|u([^]{0,4})|U([^]{0,8})|([0-7]{1,3})|(\n)|([^]))/g,
      (whole, x?: string, u?: string, U?: string, octal?: string, line?: string, other?: string) => {
        const hex = x ?? u ?? U;
        if (hex !== undefined) {
          const digits = x !== undefined ? 2 : u !== undefined ? 4 : 8;
          const code = Number.parseInt(hex, 16);
          if (!/^[\da-fA-F]*$/.test(hex) || hex.length < digits || code > 0x10ffff) {
            this.#fail(`truncated or illegal escape ${whole}`);
          }
          return String.fromCodePoint(code);
        }
        if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
        if (line !== undefined) return "";
        if (other === "N") throw new Unsupported("escapes by name (\\N{…})");
        return ESCAPES[other!] ?? whole;
      },
    );
  }
}

const ESCAPES: Readonly<Record<string, string>> = {
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};
