import { equals } from "./operators.js";
import { required } from "./arguments.js";
import {
  Attributes,
  Callable,
  lengthOf,
  orElse,
  tupleOf,
  type Tuple,
  Undefined,
  type Arguments,
  type Value,
} from "./values.js";

/** A running `for`: its elements, and the template's variable `loop`. */
export class Loop {
  /** The special variable `loop`. */
  readonly value: Value;
  #index0 = -1;
  #previous: Value | undefined;
  #current: Value | undefined;
  /** Elements that were read ahead. */
  #ahead: Value[] = [];
  #length: number | null = null;
  #lastChanged: Tuple | null = null;

  /**
   * @param sized the source of the elements, if it has the same length; else null
   * @param recurse runs the loop's body for another iterable; null if the loop is not recursive
   */
  constructor(
    private readonly members: Iterator<Value>,
    private readonly sized: Value,
    private readonly depth0: number,
    private readonly recurse: ((iterable: Value) => string) | null,
  ) {
    this.value = new LoopVariable(
      (name) => this.#attribute(name),
      (given) => this.#call(given),
    );
  }

  next(): { value: Value } | null {
    const [value] = this.#peek() ? [this.#ahead.shift()!] : [];
    if (value === undefined) return null;
    this.#previous = this.#current;
    this.#current = value;
    this.#index0++;
    return { value };
  }

  #peek(): boolean {
    if (this.#ahead.length > 0) return true;
    const next = this.members.next();
    if (next.done === true) return false;
    this.#ahead.push(next.value);
    return true;
  }

  #size(): number {
    if (this.#length === null) {
      const known = this.sized === null ? null : lengthOf(this.sized);
      if (known === null) {
        for (let next = this.members.next(); next.done !== true; next = this.members.next())
          this.#ahead.push(next.value);
      }
      this.#length = known ?? this.#index0 + 1 + this.#ahead.length;
    }
    return this.#length;
  }

  #attribute(name: string): Value | undefined {
    switch (name) {
      case "index0":
        return BigInt(this.#index0);
      case "index":
        return BigInt(this.#index0 + 1);
      case "first":
        return this.#index0 === 0;
      case "last":
        return !this.#peek();
      case "length":
        return BigInt(this.#size());
      case "revindex":
        return BigInt(this.#size() - this.#index0);
      case "revindex0":
        return BigInt(this.#size() - this.#index0 - 1);
      case "previtem":
        return orElse(this.#previous, () => new Undefined("there is no previous item"));
      case "nextitem":
        return this.#peek() ? this.#ahead[0]! : new Undefined("there is no next item");
      case "depth":
        return BigInt(this.depth0 + 1);
      case "depth0":
        return BigInt(this.depth0);
      case "cycle":
        return new Callable(name, ({ positional }) =>
          required("loop.cycle", positional[this.#index0 % positional.length]),
        );
      case "changed":
        return new Callable(name, ({ positional }) => {
          const given = tupleOf(...positional);
          const isSame = this.#lastChanged !== null && equals(this.#lastChanged, given);
          this.#lastChanged = given;
          return !isSame;
        });
      default:
        return undefined;
    }
  }

  #call({ positional }: Arguments): Value | undefined {
    return this.recurse?.(required("loop", positional[0]));
  }
}

/** `loop`: attributes, and in a recursive loop a function. */
export class LoopVariable extends Attributes {
  readonly name = "LoopContext";

  constructor(
    readonly attribute: (name: string) => Value | undefined,
    /** undefined if the loop is not recursive. */
    readonly call: (given: Arguments) => Value | undefined,
  ) {
    super();
  }
}
