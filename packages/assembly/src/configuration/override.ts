import { UsageError, dotted, keysAt } from "@astra-rl/base";
import { parse } from "yaml";
import { rootSchema } from "./json-schema.js";
import { excessOf } from "./yaml-bounds.js";

/** A value that replaces one of the file: one `--set a.b[0].c=d` of the command line, or a key given by a program. */
export interface Override {
  /** Keys of sections, and list indices from 0. */
  path: readonly (string | number)[];
  value: unknown;
  /** Where it was given, such as "--set a=b", for messages. */
  where: string;
}

/** One `--set`, with its original text. */
export interface SetOverride extends Override {
  text: string;
}

const PART = /^([^[\]]+)((?:\[\d+\])*)$/;

/**
 * Parses `a.b=c` or `a.b[0].c=d`; the value is YAML, so that it may be a number, list or boolean.
 *
 * @throws UsageError if there is no "=", a part of the path is empty, or the value is not YAML
 */
export function parseOverride(text: string): SetOverride {
  const where = `--set ${text}`;
  const at = text.indexOf("=");
  const path: (string | number)[] = [];
  for (const part of text.slice(0, Math.max(at, 0)).split(".")) {
    const found = PART.exec(part.trim());
    if (found === null || found[1]!.trim() === "") {
      throw new UsageError(
        "malformed-override",
        `${where}: must look like section.key=value, for example training.learningRate=1e-5, or ` +
          `scorer.entries[0].term=word for the first of a list`,
      );
    }
    path.push(found[1]!.trim());
    for (const [, place] of found[2]!.matchAll(/\[(\d+)\]/g)) path.push(Number(place));
  }
  const given = text.slice(at + 1);
  const excess = excessOf(given);
  if (excess !== null)
    throw new UsageError("excessive-yaml", `--set ${text.slice(0, at)}: the value ${excess}`);
  try {
    return { path, value: parse(given, { logLevel: "error" }) as unknown, text, where };
  } catch (error) {
    throw new UsageError(
      "not-yaml",
      `${where}: the value is not YAML: ${(error as Error).message.split("\n")[0]}`,
      {
        cause: error,
      },
    );
  }
}

/**
 * Applies overrides to the file's content, in order. Creates missing sections and lists; the index after the last
 * item of a list appends.
 *
 * @throws UsageError if a path leads through a value that is not a section or list, or beyond the end of a list
 */
export function applyOverrides(content: Record<string, unknown>, overrides: readonly Override[]): void {
  for (const { path, value, where } of overrides) {
    let inside: unknown = content;
    for (const [depth, step] of path.entries()) {
      check(inside, path.slice(0, depth), step, where);
      const section = inside as Record<string | number, unknown>;
      if (depth === path.length - 1) {
        const former = Object.hasOwn(section, step) ? section[step] : undefined;
        // Another checkpoint keeps the conversation format of the section.
        if (typeof value === "string" && hasPath(former)) define(former, "path", value);
        else define(section, step, value);
        break;
      }
      const next = Object.hasOwn(section, step) ? section[step] : undefined;
      if (next === undefined || next === null) {
        checkIsSection(path.slice(0, depth + 1), path[depth + 1]!, where);
        define(section, step, typeof path[depth + 1] === "number" ? [] : {});
      }
      inside = section[step];
    }
  }
}

const hasPath = (value: unknown): value is { path: unknown } =>
  typeof value === "object" && value !== null && Object.hasOwn(value, "path");

/** Throws if an override would turn a known scalar option into a section. */
function checkIsSection(path: readonly (string | number)[], next: string | number, where: string): void {
  if (typeof next === "number" || path.some((step) => typeof step === "number")) return;
  // Keys of `modules` are arbitrary.
  if (path[0] === "modules") return;
  const isKnown = keysAt(rootSchema(), path.slice(0, -1)).includes(String(path.at(-1)));
  if (!isKnown || keysAt(rootSchema(), path).length > 0) return;
  throw new UsageError(
    "not-a-section",
    `${where}: "${dotted(path)}" is a value, not a section; write --set ${dotted(path)}=…`,
  );
}

/** Checks one step of a path. */
function check(
  inside: unknown,
  before: readonly (string | number)[],
  step: string | number,
  where: string,
): void {
  const name = dotted(before);
  if (typeof step === "string") {
    if (typeof inside === "object" && inside !== null && !Array.isArray(inside)) return;
    const what = Array.isArray(inside)
      ? `a list; name an item, such as ${name}[0]`
      : "a value, not a section";
    throw new UsageError("not-a-section", `${where}: "${name}" is ${what}`);
  }
  if (!Array.isArray(inside)) throw new UsageError("not-a-list", `${where}: "${name}" is not a list`);
  if (step <= inside.length) return;
  const held =
    inside.length === 0
      ? "is empty"
      : `holds ${inside.length}, [0] to [${inside.length - 1}]`.replace("[0] to [0]", "[0]");
  throw new UsageError(
    "index-beyond-end",
    `${where}: "${name}" ${held}; [${inside.length}] appends one, [${step}] is beyond the end`,
  );
}

/** The last override that set the value at a path, or an enclosing section. */
export const overrideOf = (path: readonly PropertyKey[], overrides: readonly Override[]) =>
  overrides.findLast((override) => override.path.every((step, index) => path[index] === step));

// defineProperty, because assigning a key such as __proto__ would change the prototype.
function define(section: object, key: string | number, value: unknown): void {
  Object.defineProperty(section, key, { value, writable: true, enumerable: true, configurable: true });
}
