import { afterEach, beforeEach, expect } from "vitest";
import { liveTensors } from "../src/index.js";

/** Every test of the file must leave the number of live tensors unchanged. */
export function expectNoLeaks(): void {
  let before = 0;
  beforeEach(() => {
    before = liveTensors();
  });
  afterEach(() => {
    expect(liveTensors(), "live tensors after the test").toBe(before);
  });
}
