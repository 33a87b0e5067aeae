import type { Reporter, SerializedError, TestModule } from "vitest/node";

/** Counts of one run. A test file that cannot be loaded and an error outside every test are failures too. */
export interface Counts {
  passed: number;
  failed: number;
  skipped: number;
}

/** The plain line that a run ends in. */
export function closingLine({ passed, failed, skipped }: Counts): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}

/** Prints the closing line after everything that other reporters print. */
export default class ClosingLineReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]): void {
    const counts: Counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) {
      let failedInside = 0;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === "passed") counts.passed += 1;
        else if (state === "skipped") counts.skipped += 1;
        else failedInside += 1;
      }
      const brokenOutsideTests = failedInside === 0 && module.state() === "failed";
      counts.failed += brokenOutsideTests ? 1 : failedInside;
    }
    process.once("exit", () => process.stdout.write(`${closingLine(counts)}\n`));
  }
}
