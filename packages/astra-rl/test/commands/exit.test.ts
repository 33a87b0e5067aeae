import { AstraError, TorchError, UsageError } from "@astra-rl/base";
import { expect, test } from "vitest";
import { explain } from "@astra-rl/assembly/program";

const systemError = (code: string, path?: string) => Object.assign(new Error(`${code}: x`), { code, path });

test.each([
  [new UsageError("out-of-range", "run.yaml:1:1: wrong"), 2, "run.yaml:1:1: wrong"],
  [new UsageError("out-of-range", "one\ntwo"), 2, "one\ntwo"],
  [
    systemError("ENOSPC", "/full/x"),
    2,
    "/full/x: the disk is full; free some space or choose another folder (ENOSPC)",
  ],
  [systemError("EROFS"), 2, "the file system is read-only; choose another folder (EROFS)"],
  [new TorchError("matmul: shapes"), 1, "matmul: shapes"],
  [new AstraError("trainer: stopped"), 1, "trainer: stopped"],
  [
    new TypeError("x is not a function"),
    1,
    "internal: x is not a function (set ASTRA_RL_DEBUG=1 for the stack)",
  ],
  ["a thrown text", 1, "internal: a thrown text (set ASTRA_RL_DEBUG=1 for the stack)"],
  [new UsageError("out-of-range", "prompt \u001B[31mred"), 2, "prompt \\u{1b}[31mred"],
])("%s", (error, code, line) => {
  expect(explain(error)).toEqual({ code, line });
});
