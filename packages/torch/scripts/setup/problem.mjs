/** A failed set-up step: one cause, and one remedy per line. */
export class SetupProblem extends Error {
  /**
   * @param {string} cause what is wrong, as one sentence
   * @param {readonly string[]} remedies each is sufficient alone
   */
  constructor(cause, remedies) {
    super(cause);
    this.name = "SetupProblem";
    this.remedies = remedies;
  }

  /** The text that set-up prints before it stops. */
  report() {
    const heading = this.remedies.length > 1 ? "any one of these helps:" : "this helps:";
    return [`setup: ${this.message}`, `  ${heading}`, ...this.remedies.map((remedy) => `  - ${remedy}`)].join(
      "\n",
    );
  }
}
