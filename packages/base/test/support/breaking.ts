import { expect } from "vitest";

/**
 * Matches a `UsageError` with this rule code; an argument of `toThrow` and `rejects.toThrow`.
 *
 * @param named what the message must name: a key, a path or a value, so that the test is about this place; not the
 * wording, which one test per sentence asserts
 */
export const breaking = (rule: string, named = ""): unknown =>
  expect.objectContaining({ rule, message: expect.stringContaining(named) as unknown });
