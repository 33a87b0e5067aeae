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
