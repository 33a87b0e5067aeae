/**
 * A Python name that a pickle may contain, with the function that replaces calling it; null: it may be named but not
 * called.
 */
export interface Global {
  readonly name: string;
  readonly call: ((values: readonly unknown[]) => unknown) | null;
}

export interface UnpickleOptions {
  /** The only allowed names, as "module name". */
  globals: ReadonlyMap<string, Global>;
  /** Resolves persistent ids: torch.save stores tensor data outside the pickle. */
  persistent: (id: unknown) => unknown;
  /** Creates the error from a rule code and a reason. */
  fail: (rule: string, why: string) => Error;
}

/**
 * Reads one pickle as data: supports the opcodes of plain values, and calls only the functions in `globals`, which are
 * ours. All other opcodes and names are refused, so that no code from the file can run (like PyTorch's
 * `weights_only=True`).
 *
 * Dictionaries become Maps, lists arrays, tuples frozen arrays, large integers bigints.
 *
 * @returns the value, and the end of the pickle, since others may follow
 */
export function unpickle(
  bytes: DataView,
  start: number,
  { globals, persistent, fail }: UnpickleOptions,
): { value: unknown; end: number } {
  const stack: unknown[] = [];
  const marks: number[] = [];
  const memo = new Map<number, unknown>();
  let at = start;

  const take = (length: number) => {
    if (at + length > bytes.byteLength) throw fail("truncated-file", "its pickle ends too early");
    at += length;
    return at - length;
  };
  const byte = () => bytes.getUint8(take(1));
  const uint32 = () => bytes.getUint32(take(4), true);
  const text = (length: number) => textOf(bytes, take(length), length);
  const line = () => {
    const from = at;
    while (byte() !== NEWLINE);
    return textOf(bytes, from, at - 1 - from);
  };
  const pop = () => {
    // Values below the last mark belong to what precedes it.
    if (stack.length <= (marks.at(-1) ?? 0))
      throw fail("malformed-pickle", "its pickle takes more values than it has given");
    return stack.pop();
  };
  const popMark = () => {
    const mark = marks.pop();
    if (mark === undefined) throw fail("malformed-pickle", "its pickle takes more values than it has given");
    return stack.splice(mark);
  };
  const top = () => {
    const value = pop();
    stack.push(value);
    return value;
  };
  const tuple = (values: unknown[]) => stack.push(Object.freeze(values));
  const recall = (index: number) => {
    if (!memo.has(index)) throw fail("malformed-pickle", "its pickle recalls a value that it has not given");
    stack.push(memo.get(index));
  };
  const globalOf = (module: unknown, name: unknown) => {
    const found = globals.get(`${String(module)} ${String(name)}`);
    if (found === undefined) {
      throw fail(
        "foreign-name",
        `it names ${String(module)}.${String(name)}, which is nothing that weights are made of`,
      );
    }
    stack.push(found);
  };
  const setItems = (items: readonly unknown[]) => {
    const target = top();
    if (!(target instanceof Map) || items.length % 2 !== 0)
      throw fail("malformed-pickle", "its pickle fills what is no dictionary");
    for (let index = 0; index < items.length; index += 2) target.set(items[index], items[index + 1]);
  };
  const append = (items: readonly unknown[]) => {
    const target = top();
    if (!Array.isArray(target) || Object.isFrozen(target))
      throw fail("malformed-pickle", "its pickle appends to what is no list");
    for (const item of items) target.push(item);
  };

  for (;;) {
    const opcode = byte();
    switch (opcode) {
      case 0x80: // PROTO
        byte();
        break;
      case 0x95: // FRAME
        take(8);
        break;
      case 0x2e: // STOP
        return { value: pop(), end: at };
      case 0x28: // MARK
        marks.push(stack.length);
        break;

      case 0x4e: // NONE
        stack.push(null);
        break;
      case 0x88: // NEWTRUE
        stack.push(true);
        break;
      case 0x89: // NEWFALSE
        stack.push(false);
        break;
      case 0x4b: // BININT1
        stack.push(byte());
        break;
      case 0x4d: // BININT2
        stack.push(bytes.getUint16(take(2), true));
        break;
      case 0x4a: // BININT
        stack.push(bytes.getInt32(take(4), true));
        break;
      case 0x8a: // LONG1
        stack.push(readLong(bytes, take, byte()));
        break;
      case 0x47: // BINFLOAT
        stack.push(bytes.getFloat64(take(8)));
        break;
      case 0x58: // BINUNICODE
        stack.push(text(uint32()));
        break;
      case 0x8c: // SHORT_BINUNICODE
        stack.push(text(byte()));
        break;

      case 0x7d: // EMPTY_DICT
        stack.push(new Map());
        break;
      case 0x73: {
        // SETITEM
        const value = pop();
        setItems([pop(), value]);
        break;
      }
      case 0x75: // SETITEMS
        setItems(popMark());
        break;
      case 0x5d: // EMPTY_LIST
        stack.push([]);
        break;
      case 0x61: // APPEND
        append([pop()]);
        break;
      case 0x65: // APPENDS
        append(popMark());
        break;
      case 0x29: // EMPTY_TUPLE
        tuple([]);
        break;
      case 0x85: // TUPLE1
        tuple([pop()]);
        break;
      case 0x86: // TUPLE2
        tuple([pop(), pop()].reverse());
        break;
      case 0x87: // TUPLE3
        tuple([pop(), pop(), pop()].reverse());
        break;
      case 0x74: // TUPLE
        tuple(popMark());
        break;

      case 0x71: // BINPUT
        memo.set(byte(), top());
        break;
      case 0x72: // LONG_BINPUT
        memo.set(uint32(), top());
        break;
      case 0x94: // MEMOIZE
        memo.set(memo.size, top());
        break;
      case 0x68: // BINGET
        recall(byte());
        break;
      case 0x6a: // LONG_BINGET
        recall(uint32());
        break;

      case 0x63: // GLOBAL
        globalOf(line(), line());
        break;
      case 0x93: {
        // STACK_GLOBAL
        const name = pop();
        globalOf(pop(), name);
        break;
      }
      case 0x52: {
        // REDUCE
        const values = pop();
        const called = pop() as Partial<Global> | null;
        if (typeof called?.call !== "function" || !Array.isArray(values)) {
          throw fail("malformed-pickle", "its pickle calls what is no function of tensors");
        }
        stack.push(called.call(values));
        break;
      }
      case 0x62: // BUILD: attributes of a dictionary (the versions of modules), which are not weights
        pop();
        if (!(top() instanceof Map))
          throw fail("malformed-pickle", "its pickle sets attributes of what is no dictionary");
        break;
      case 0x51: // BINPERSID
        stack.push(persistent(pop()));
        break;
      default:
        throw fail(
          "foreign-opcode",
          `its pickle asks for opcode 0x${opcode.toString(16)}, which weights do without`,
        );
    }
  }
}

const NEWLINE = 10;

/** A little-endian two's complement integer. */
function readLong(bytes: DataView, take: (length: number) => number, length: number): number | bigint {
  const start = take(length);
  let value = 0n;
  for (let index = length - 1; index >= 0; index--) {
    value = (value << 8n) | BigInt(bytes.getUint8(start + index));
  }
  value = BigInt.asIntN(8 * length, value);
  return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}

const decoder = new TextDecoder();

const textOf = (bytes: DataView, start: number, length: number) =>
  decoder.decode(new Uint8Array(bytes.buffer, bytes.byteOffset + start, length));
