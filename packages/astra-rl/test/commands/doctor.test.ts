import { engineInformation } from "@astra-rl/torch";
import { expect, test } from "vitest";
import { fastestTypes } from "@astra-rl/method";
import { runCommand } from "../support/run-command.js";

test("astra-rl doctor reports the instruction set, and what auto resolves to and why", async () => {
  const information = engineInformation();
  const { rollouts, updates, reason } = fastestTypes(information, "cpu", Infinity);
  const text = await runCommand("doctor");
  expect(text.out).toMatch(new RegExp(`^ISA +${information.isa}(?:, set by ASTRA_ISA)?$`, "mu"));
  expect(text.out).toMatch(/^auto +(?:bfloat16|float32).*: .{20}/mu);
  expect(text.out).toMatch(/^engine +\/.*\/astra_torch\.node$/mu);
  expect(text.out).toContain(reason);
  const json = (await runCommand("doctor", "--json")).json<{ engine: object }>()[0]!;
  expect(json.engine).toMatchObject({ isa: information.isa, computeTypes: { rollouts, updates, reason } });
});
