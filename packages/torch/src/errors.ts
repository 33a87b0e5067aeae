// The one family of errors that the whole project throws. A message begins with the place, then says the rule
// that was broken, what was given, and what to do. Faults of our own begin with "internal:".

/** Base class of every error that this project throws. `cause` holds the error that led to it. */
export class AstraError extends Error {
  override name = "AstraError";
}

/**
 * The caller gave something that cannot work: a configuration, a checkpoint, a prompt file, an argument.
 * The command line turns it into exit code 2.
 */
export class UsageError extends AstraError {
  override name = "UsageError";
}

/** A tensor operator refused its arguments or failed while it ran. */
export class TorchError extends AstraError {
  override name = "TorchError";
}

/** A model computed numbers that are infinite or none: its weights are broken, or training has made them diverge. */
export class NotFiniteError extends AstraError {
  override name = "NotFiniteError";
}

/** There is no memory for what was asked of the engine: the message says how much was, and how much is left. */
export class OutOfMemoryError extends TorchError {
  override name = "OutOfMemoryError";
}

/** Renders a rejected value shortly, so that a message can carry it whatever it is. */
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
