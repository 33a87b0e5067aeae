/**
 * A training run in a separate process, for the test that kills it: `tsx kill-run.ts FOLDER STEPS`.
 * It resumes the run in the folder, or starts it without a checkpoint, and prints a line for each step.
 */
import { existsSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { assemble, QUICK } from "./support.js";

const [folder, steps] = process.argv.slice(2);
const checkpoints = join(folder!, "checkpoints");
const resume = existsSync(join(checkpoints, "last")) || existsSync(join(checkpoints, ".last.old"));
if (!resume) rmSync(folder!, { recursive: true, force: true });
const { trainer } = assemble(
  { ...QUICK, trainingSteps: Number(steps) },
  // Synchronous and unbuffered, so that the parent sees the run's progress.
  {
    runDirectory: folder!,
    resume,
    callbacks: [{ name: "parent", onStepKept: ({ step }) => void writeSync(1, `${step}\n`) }],
  },
);
await trainer.train();
