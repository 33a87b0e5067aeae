import { describeValue, UsageError } from "@astra-rl/base";
import { isText, JsonFields } from "../json-fields.js";

/** Maximum number of components in a sequence, and of nesting levels; no real tokenizer reaches it. */
const MOST_PARTS = 64;
const DEEPEST = 9;

/**
 * One object in a tokenizer's files: fields that were never read are refused, so that no option is ignored. Every error
 * names the file, component and option, the reason, and a remedy.
 */
export class Part extends JsonFields {
  constructor(
    value: unknown,
    /** File and path within it: `tokenizer.json: "decoder"`. */
    where: string,
    readonly depth = 0,
  ) {
    if (depth > DEEPEST)
      throw new UsageError("nested-too-deeply", `${where.slice(0, 200)}…: parts are nested too deep`);
    super(value, where);
    this.asked.add("type");
  }

  get type(): string {
    return this.string("type");
  }

  /** A string of exactly one code point. */
  character(name: string): string {
    return this.field("not-a-character", name, {}, "one character", (value): value is string => {
      return isText(value) && Array.from(value).length === 1;
    });
  }

  override nested(name: string): Part | null {
    return this.has(name) ? new Part(this.values[name], this.inside(name), this.depth + 1) : null;
  }

  /** The objects in a list. */
  parts(name: string): Part[] {
    const list = this.list(name);
    if (list.length > MOST_PARTS)
      throw this.refuse("too-many-parts", name, `it has more than ${MOST_PARTS} parts`);
    return list.map((value, index) => new Part(value, `${this.inside(name)}[${index}]`, this.depth + 1));
  }

  override inside(name: string): string {
    return this.depth === 0 ? super.inside(name) : `${this.where}.${JSON.stringify(name)}`;
  }

  /** Reads flags that change nothing here. */
  ignore(names: readonly string[]): void {
    for (const name of names) this.boolean(name, { fallback: true });
  }

  /** An error about one option. `remedy`, the end of the message, says what to do instead. */
  refuse(rule: string, name: string, why: string, remedy = RESAVE): UsageError {
    return new UsageError(
      rule,
      `${this.title}: "${name}" is ${describeValue(this.values[name])}: ${why}; ${remedy}`,
    );
  }

  /** What a reader makes of this object. Throws for fields that it did not read. */
  read<T>(reader: (part: this) => T): T {
    const made = reader(this);
    for (const name of Object.keys(this.values)) {
      if (this.asked.has(name)) continue;
      throw this.refuse("unknown-key", name, "this option is unknown, so the ids might differ from Python's");
    }
    return made;
  }
}

/** Maximum growth factor of a text: no real component exceeds it, unless it was made to exhaust memory. */
const MOST_GROWTH = 64;

export function checkGrowth(place: string, before: number, after: number): void {
  if (after <= Math.max(MOST_GROWTH * before, 2 ** 16)) return;
  throw new UsageError(
    "excessive-growth",
    `${place}: makes a text of ${before} characters longer than ${MOST_GROWTH} times that`,
  );
}

/** Applies the components of a sequence in order. Throws if one makes the value too long. */
export function inOrder<T>(
  { where }: Part,
  components: readonly ((value: T) => T)[],
  lengthOf: (value: T) => number,
): (value: T) => T {
  return (value) => {
    const before = lengthOf(value);
    return components.reduce((current, component) => {
      const next = component(current);
      checkGrowth(where, before, lengthOf(next));
      return next;
    }, value);
  };
}

export const RESAVE = "use a checkpoint whose tokenizer does not need it, or tokenize in Python";
