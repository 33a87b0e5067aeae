import { afterEach, expect, it, vi } from "vitest";
import { TimeLimitError, withTimeLimit } from "../src/time-limit.js";

afterEach(() => {
  vi.restoreAllMocks();
});

/** From now on, the process reports this computing time for each attempt; counts attempts. */
function hasComputed(milliseconds: number) {
  const attempts = { count: 0 };
  vi.spyOn(process, "cpuUsage").mockImplementation((before) => {
    if (before === undefined) attempts.count += 1;
    return { user: before === undefined ? 0 : milliseconds * 1000, system: 0 };
  });
  return attempts;
}

const endless = () => {
  for (;;);
};

it("restarts work that got the processor for less than half of its limit", () => {
  const attempts = hasComputed(24);
  const work = () => (attempts.count === 1 ? endless() : "done");
  expect(withTimeLimit(50, work)).toBe("done");
});

it("ends work that has computed for at least half of its limit", () => {
  const attempts = hasComputed(26);
  expect(() => withTimeLimit(50, endless)).toThrow(new TimeLimitError("it takes longer than 0.1 seconds"));
  expect(attempts.count).toBe(1);
});

it("waits for a processor for at most 32 times the limit", () => {
  const attempts = hasComputed(0);
  const began = performance.now();
  expect(() => withTimeLimit(5, endless)).toThrow(TimeLimitError);
  // 5, 10, 20, 40, 80 and 160 ms.
  expect(attempts.count).toBe(6);
  expect(performance.now() - began).toBeGreaterThan(300);
});
