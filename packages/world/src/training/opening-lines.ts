import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const SOURCE = fileURLToPath(new URL("../../../assembly/world/prompts/opening-lines.txt", import.meta.url));

/** Number of each subject's lines for train and for dev; the rest are held out for test. */
const TRAIN = 17;
const DEV = 3;

/** Opening lines by subject, for each split; every line ends with the line feed that ends an utterance. */
export interface OpeningLines {
  readonly train: ReadonlyMap<string, readonly string[]>;
  readonly dev: ReadonlyMap<string, readonly string[]>;
  readonly test: ReadonlyMap<string, readonly string[]>;
}

/** Reads the hand-written lines and splits each subject's by a seeded shuffle. */
export function splitOpeningLines(random: () => number, path: string = SOURCE): OpeningLines {
  const subjects = new Map<string, string[]>();
  let current: string[] = [];
  for (const line of readFileSync(path, "utf8").split("\n")) {
    if (line.startsWith("# ")) subjects.set(line.slice(2), (current = []));
    else if (line !== "") current.push(line);
  }
  const train = new Map<string, readonly string[]>();
  const dev = new Map<string, readonly string[]>();
  const test = new Map<string, readonly string[]>();
  for (const [subject, lines] of subjects) {
    const shuffled = [...lines];
    for (let i = shuffled.length - 1; i > 0; i--) {
      const j = Math.floor(random() * (i + 1));
      [shuffled[i], shuffled[j]] = [shuffled[j]!, shuffled[i]!];
    }
    train.set(subject, shuffled.slice(0, TRAIN));
    dev.set(subject, shuffled.slice(TRAIN, TRAIN + DEV));
    test.set(subject, shuffled.slice(TRAIN + DEV));
  }
  return { train, dev, test };
}
