/**
 * A training run in a process of its own, for the test that kills it: `tsx kill-run.ts FOLDER STEPS`.
 * It resumes whatever the folder holds, and prints a line for each step.
 */
import { writeSync } from "node:fs";
import { assemble, QUICK } from "./support.js";

const [folder, steps] = process.argv.slice(2);
const { trainer } = assemble(
  { ...QUICK, trainingSteps: Number(steps) },
  // At once and unbuffered, so that the parent sees where the run stands.
  { runDirectory: folder!, resume: true, onStep: (record) => void writeSync(1, `${record.step}\n`) },
);
await trainer.train();
