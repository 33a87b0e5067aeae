// Event files of a run that was stopped after step 4 and resumed from a checkpoint of step 2, for `read_events.py`:
//
//   npx tsx packages/contrib/test/golden/events/write-events.ts FOLDER
import { fileURLToPath } from "node:url";
import { EventFile } from "../../../src/loggers/event-file.js";

const TIME = 1_763_780_000_250;
/** The values that each session wrote; the second recomputed steps 3 and 4. */
export const SESSIONS = [
  { from: 1, loss: [0.75, 0.5, 0.25, 0.125] },
  { from: 3, loss: [-0.25, -3.5, 1e-30] },
];

export function writeSessions(folder: string): void {
  for (const [session, { from, loss }] of SESSIONS.entries()) {
    const file = new EventFile(folder, from, () => TIME + 60_000 * session);
    for (const [index, value] of loss.entries())
      file.add(from + index, { loss: value, "größe/step": from + index });
    file.close();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeSessions(process.argv[2]!);
