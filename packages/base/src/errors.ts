// Errors of the whole project. A message starts with the location, then gives the violated rule, the value found and a
// remedy. Internal errors start with "internal:".

/** Base class of every error that this project throws. `cause` holds the error that led to it. */
export class AstraError extends Error {
  override name = "AstraError";
}

/**
 * The caller passed something invalid: a configuration, a checkpoint, a prompt file, an argument. The command line maps
 * it to exit code 2.
 */
export class UsageError extends AstraError {
  override name = "UsageError";

  /**
   * @param rule kebab-case code of the violated rule, in the field's words, such as "unknown-key", "out-of-range" or
   * "missing-chat-template". It names the rule, not the place: the same requirement has the same code everywhere,
   * and different requirements of one function have different codes. Programs and tests compare the code, since the
   * message is for people and may be reworded.
   * @param message location, rule, value found and remedy
   */
  constructor(
    readonly rule: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** A tensor operator rejected its arguments or failed while running. */
export class TorchError extends AstraError {
  override name = "TorchError";
}

/** A model computed infinite or NaN values: its weights are damaged, or training has diverged. */
export class NotFiniteError extends AstraError {
  override name = "NotFiniteError";
}

/** Not enough memory; the message gives the requested and the available amount. */
export class OutOfMemoryError extends TorchError {
  override name = "OutOfMemoryError";
}

/** Short description of any rejected value, for error messages. */
export function describeValue(value: unknown): string {
  if (typeof value === "string")
    return JSON.stringify(value.length > 80 ? `${value.slice(0, 77)}...` : value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return `function ${value.name || "(anonymous)"}`;
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) {
    const shown = value.slice(0, 6).map((item) => (Array.isArray(item) ? "[…]" : describeValue(item)));
    return `[${shown.join(", ")}${value.length > 6 ? `, … ${value.length} in all` : ""}]`;
  }
  if (ArrayBuffer.isView(value)) return `${value.constructor.name} of ${value.byteLength} bytes`;
  const name = (value.constructor as { name?: string } | undefined)?.name;
  return name === undefined || name === "Object" ? "an object" : `a ${name}`;
}
