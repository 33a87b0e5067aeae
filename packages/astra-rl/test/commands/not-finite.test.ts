import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();

/** A copy of the golden checkpoint whose positions from `from` on overflow. */
function overflowing(from: number): string {
  const folder = path("overflowing");
  cpSync(goldenFolder, folder, { recursive: true });
  const file = join(folder, "model.safetensors");
  const bytes = readFileSync(file);
  const header = Number(bytes.readBigUInt64LE(0));
  const tensors = JSON.parse(bytes.toString("utf8", 8, 8 + header)) as Record<
    string,
    { shape: number[]; data_offsets: number[] }
  >;
  const { shape, data_offsets: offsets } = tensors["transformer.wpe.weight"]!;
  const end = 8 + header + offsets[1]!;
  for (let at = 8 + header + offsets[0]! + 4 * from * shape[1]!; at < end; at += 4)
    bytes.writeFloatLE(3e38, at);
  writeFileSync(file, bytes);
  return folder;
}

test("logprobs refuses non-finite numbers, naming the line, instead of writing null", async () => {
  writeFileSync(
    path("pairs.jsonl"),
    '{"context": "A", "continuation": "b"}\n\n{"context": "Hello", "continuation": " world, how are you"}\n',
  );
  const args = ["logprobs", "--model", overflowing(8), "--input", path("pairs.jsonl"), "--quiet"];
  const { code, out, err } = await runCommand(...args, "--batch-size", "1");
  expect(code).toBe(1);
  // Earlier results remain.
  expect(out.trimEnd().split("\n")).toHaveLength(1);
  expect(out).not.toContain("null");
  expect(err).toContain(`${path("pairs.jsonl")}:3: the model gives no finite log-probability of token`);
});
