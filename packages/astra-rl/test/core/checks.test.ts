import { describe, expect, it } from "vitest";
import {
  checkLogprobs,
  checkRewards,
  checkValues,
  ContractError,
  type TensorRules,
} from "../../src/core/index.js";
import { table } from "../support/table.js";

const frozen: TensorRules = { batch: 2, gradient: false, device: null };
const check = (tensor: unknown, rules: Partial<TensorRules> = {}) =>
  checkLogprobs("here", tensor, { ...frozen, ...rules });

describe("checkLogprobs", () => {
  it("accepts finite numbers of at most 0, rounding and certainty included", () => {
    check(
      table([
        [-1, -2],
        [-3, 0],
      ]),
    );
    check(
      table([
        [0, 0],
        [0, 0],
      ]),
    );
    check(table([[1e-6], [-1]]));
    check(table([[], []]));
  });

  it.each([
    ["no tensor", [[-1], [-1]], {}, /must return a tensor \[B, T\], got object/u],
    ["null", null, {}, /got null/u],
    ["other rows", table([[-1]]), {}, /each of 2 inputs, got 1 rows/u],
    [
      "a positive number",
      table([
        [-1, -1],
        [-1, 2.5],
      ]),
      {},
      /at most 0, got 2.5 at row 1, token 1$/u,
    ],
    ["probabilities", table([[0.5], [0.25]]), {}, /got 0.5 at row 0, token 0; they look like probabilities/u],
    ["NaN", table([[-1], [NaN]]), {}, /must be finite, got NaN at row 1, token 0/u],
    ["−∞", table([[-1, -Infinity], [-1]]), {}, /got -Infinity at row 0, token 1/u],
    ["no gradient", table([[-1], [-1]]), { gradient: true }, /must carry a gradient/u],
    ["a stray gradient", table([[-1], [-1]], true), {}, /must not carry a gradient/u],
    [
      "another device",
      Object.defineProperty(table([[-1], [-1]]), "device", { value: "cuda" }),
      { device: "cpu" },
      /\(cpu\), got cuda/u,
    ],
  ])("refuses %s", (_, tensor, rules, message) => {
    expect(() => check(tensor, rules)).toThrow(message);
    expect(() => check(tensor, rules)).toThrow(ContractError);
  });

  it("refuses other shapes and types", () => {
    const cube = table([[-1], [-1]]);
    Object.defineProperty(cube, "shape", { value: [2, 1, 1] });
    expect(() => check(cube)).toThrow(/got shape \[2, 1, 1\]/u);
    const half = table([[-1], [-1]]);
    Object.defineProperty(half, "dtype", { value: "bfloat16" });
    expect(() => check(half)).toThrow(/got bfloat16/u);
  });
});

describe("checkValues", () => {
  it("accepts any sign and asks for a gradient", () => {
    checkValues("here", table([[1], [-1]], true), { ...frozen, gradient: true });
    expect(() => checkValues("here", table([[1], [-1]]), { ...frozen, gradient: true })).toThrow(/gradient/u);
  });
});

describe("checkRewards", () => {
  it("accepts one finite number for each turn and nothing else", () => {
    checkRewards("here", [0, -2.5], 2);
    expect(() => checkRewards("here", [0], 2)).toThrow(/each of 2 inputs, got 1/u);
    expect(() => checkRewards("here", [0, NaN], 2)).toThrow(/got NaN for input 1/u);
    expect(() => checkRewards("here", [0, "1" as unknown as number], 2)).toThrow(/got 1 for input 1/u);
  });
});
