import { afterEach, expect, it, vi } from "vitest";
import { TimeLimitError, withTimeLimit } from "../src/time-limit.js";

afterEach(() => {
  vi.restoreAllMocks();
});

/** From here on, the process is told that it computed for so long while the work ran. */
function hasComputed(milliseconds: number): void {
  vi.spyOn(process, "cpuUsage").mockImplementation((before) => ({
    user: before === undefined ? 0 : milliseconds * 1000,
    system: 0,
  }));
}

/** Work that takes this long the first times, and no time from then on. */
function slow(milliseconds: number, times: number) {
  const runs = { count: 0 };
  const work = () => {
    runs.count += 1;
    const end = performance.now() + (runs.count <= times ? milliseconds : 0);
    while (performance.now() < end);
    return "done";
  };
  return { runs, work };
}

it("starts work again that other processes kept from the processor for more than half of its limit", () => {
  hasComputed(24);
  const { runs, work } = slow(1000, 1);
  expect([withTimeLimit(50, work), runs.count]).toEqual(["done", 2]);
});

it("ends work that has had at least half of its limit", () => {
  hasComputed(26);
  const { runs, work } = slow(1000, 1);
  expect(() => withTimeLimit(50, work)).toThrow(new TimeLimitError("it takes longer than 0.1 seconds"));
  expect(runs.count).toBe(1);
});

it("waits for a processor for at most 32 times the limit", () => {
  hasComputed(0);
  const { runs, work } = slow(1000, Infinity);
  const began = performance.now();
  expect(() => withTimeLimit(5, work)).toThrow(TimeLimitError);
  // 5, 10, 20, 40, 80 and 160 ms.
  expect(runs.count).toBe(6);
  expect(performance.now() - began).toBeGreaterThan(300);
});
