import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { executeBeside } from "../../packages/torch/scripts/setup/command.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const check = (...args: string[]) =>
  executeBeside(
    process.execPath,
    [
      "node_modules/tsx/dist/cli.mjs",
      "--tsconfig",
      "tsconfig.check.json",
      "scripts/check-cuda/index.ts",
      ...args,
    ],
    { cwd: root },
  );

it("checks itself on the CPU: every operator with a golden value", async () => {
  const { ok, output } = await check("--device", "cpu", "--only", "operators");
  const [, right, all] = /(\d+) of (\d+) cases/u.exec(output)!;
  expect([ok, right]).toEqual([true, all]);
  expect(Number(all)).toBeGreaterThan(400);
});

it("checks itself on the CPU: decoding with graphs, which repeat nothing there", async () => {
  const { ok, output } = await check("--device", "cpu", "--only", "graphs");
  const rows = output.split("\n").filter((line) => line.startsWith("| graphs: "));
  expect([ok, rows.filter((line) => line.includes(" NO "))]).toEqual([true, []]);
  expect(rows.filter((line) => /\| 0 \(must be 0\) *\| yes/u.test(line)).length).toBeGreaterThan(4);
  expect(output).toContain("8 buckets");
});

it("says what it cannot do, without a stack trace", async () => {
  const unknown = await check("--device", "cpu", "--only", "operators,kernels");
  expect(unknown.output).toBe(
    "check-cuda: --only: there is no part kernels; choose of operators, models, graphs, runs, commands, demo, speed\n",
  );
  const missing = await check("--device", "cuda:99");
  expect([missing.ok, missing.output]).toEqual([
    false,
    expect.stringMatching(/^check-cuda: --device: cuda:99 cannot be used: .*\n$/u),
  ]);
});
