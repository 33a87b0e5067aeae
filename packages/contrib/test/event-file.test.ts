import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { crc32c, EventFile } from "../src/loggers/event-file.js";
import { parametersOf } from "@astra-rl/method";
import { SESSIONS, writeSessions } from "./golden/events/write-events.js";

const folder = mkdtempSync(join(tmpdir(), "astra-rl-events-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const golden = JSON.parse(readFileSync(new URL("golden/events/events.json", import.meta.url), "utf8")) as {
  time: number;
  values: Record<string, number>;
  begun: string;
  resumed: string;
  hyperparameters: string;
};
/** What `read_events.py` found in the files that `writeSessions` writes. */
const readBack = JSON.parse(
  readFileSync(new URL("golden/events/read-events.json", import.meta.url), "utf8"),
) as {
  files: string[];
  read: Record<string, [step: number, value: number][]>;
};
const now = () => golden.time * 1000;
const hexOf = (path: string) => readFileSync(path).toString("hex");

test("CRC-32C gives the values of RFC 3720, appendix B.4, and of the nine digits", () => {
  expect(crc32c(Buffer.alloc(32))).toBe(0x8a9136aa);
  expect(crc32c(Buffer.alloc(32, 0xff))).toBe(0x62a8ab43);
  expect(crc32c(Uint8Array.from({ length: 32 }, (_, i) => i))).toBe(0x46dd794e);
  expect(crc32c(Uint8Array.from({ length: 32 }, (_, i) => 31 - i))).toBe(0x113fdb5c);
  expect(crc32c(Buffer.from("123456789"))).toBe(0xe3069283);
});

test("a file contains the bytes that Python's tensorboard writes", () => {
  const file = new EventFile(join(folder, "begun"), 1, now);
  file.add(1, golden.values);
  file.add(300, { loss: 0.1 });
  file.close();
  expect(hexOf(file.path)).toBe(golden.begun);
});

test("the file of a resumed run begins with the event that discards later steps", () => {
  const file = new EventFile(join(folder, "resumed"), 5_000_000_000, now);
  file.add(5_000_000_000, { loss: 0.1 });
  file.close();
  expect(hexOf(file.path)).toBe(golden.resumed);
});

test("hyperparameters are the bytes that Python's tensorboard writes", () => {
  const file = new EventFile(join(folder, "hyperparameters"), 1, now);
  const configuration = {
    training: { learningRate: 1e-5 },
    models: { tester: "größe" },
  };
  for (const parameter of [
    ...parametersOf(configuration),
    ...parametersOf({ training: { keepGraphs: true, betas: [0.9, 0.99] } }),
  ])
    file.addHyperparameters([parameter]);
  file.close();
  expect(hexOf(file.path)).toBe(golden.hyperparameters);
});

test("TensorBoard reads the values back, recomputed ones only once", () => {
  const sessions = join(folder, "sessions");
  writeSessions(sessions);
  const files = readdirSync(sessions).sort();
  expect(files.map((name) => hexOf(join(sessions, name)))).toEqual(readBack.files);
  // What stood there before the session that begins at step 3, and what that one wrote.
  const [first, second] = SESSIONS;
  const losses = [...first!.loss.slice(0, second!.from - 1), ...second!.loss];
  expect(readBack.read).toEqual({
    loss: losses.map((value, index) => [index + 1, Math.fround(value)]),
    "größe/step": losses.map((_, index) => [index + 1, index + 1]),
  });
});

test("two sessions in one second write two files, which TensorBoard reads in their order", () => {
  const files = [1, 9].map((step) => new EventFile(join(folder, "two"), step, now));
  for (const file of files) file.close();
  expect(readdirSync(join(folder, "two"))).toHaveLength(2);
  expect(files[0]!.path < files[1]!.path).toBe(true);
});

test("a folder that cannot be created is named", () => {
  expect(() => new EventFile("/proc/none/events", 1, now)).toThrow(breaking("not-writable", "/proc/none"));
});
