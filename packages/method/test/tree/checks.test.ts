import { describe, expect, it } from "vitest";
import {
  checkRewards,
  checkTable,
  ContractError,
  TokenTable,
  type TableRules,
} from "../../src/tree/index.js";
import { table } from "../support/table.js";

const frozen: TableRules = { batch: 2, gradient: false, device: null };
const check = (made: unknown, rules: Partial<TableRules> = {}) =>
  checkTable("here", made, { ...frozen, numbers: "logprobs", ...rules });
/** A table whose tensor reports other properties. */
const lying = (made: TokenTable, property: "device" | "dtype", value: string) => {
  Object.defineProperty(made.values, property, { value });
  return made;
};

describe("checkTable of log-probabilities", () => {
  it("accepts finite numbers of at most 0, including rounding errors and 0", () => {
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
    ["no table", [[-1], [-1]], {}, /must return a TokenTable, got object/u],
    ["a bare tensor", table([[-1], [-1]]).values, {}, /number of tokens of each row: new TokenTable/u],
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
    ["another device", lying(table([[-1], [-1]]), "device", "cuda"), { device: "cpu" }, /\(cpu\), got cuda/u],
    [
      "numbers beyond a row's tokens",
      new TokenTable(
        table([
          [-1, -2],
          [-1, -2],
        ]).values,
        [2, 1],
      ),
      {},
      /must be 0 beyond each row's tokens, got -2 at row 1, token 1, where the row has 1 tokens/u,
    ],
    ["other types", lying(table([[-1], [-1]]), "dtype", "bfloat16"), {}, /got bfloat16/u],
  ])("refuses %s", (_, made, rules, message) => {
    expect(() => check(made, rules)).toThrow(message);
    expect(() => check(made, rules)).toThrow(ContractError);
  });
});

describe("checkTable of values", () => {
  it("accepts any sign and requires a gradient", () => {
    checkTable("here", table([[1], [-1]], true), { ...frozen, gradient: true });
    expect(() => checkTable("here", table([[1], [-1]]), { ...frozen, gradient: true })).toThrow(/gradient/u);
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
