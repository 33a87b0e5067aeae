import { dispose, liveTensors, scope, tensor } from "@astra-rl/torch";
import { expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import { TokenTable } from "../../src/tree/index.js";

it("keeps its lengths, also if the last numbers are 0", () => {
  scope(() => {
    const table = TokenTable.ofRows([[-1, -2, 0], [], [0], [-4]]);
    expect(table.lengths).toEqual([3, 0, 1, 1]);
    expect(table.values.toArray()).toEqual([
      [-1, -2, 0],
      [0, 0, 0],
      [0, 0, 0],
      [-4, 0, 0],
    ]);
    expect(table.rows()).toEqual([[-1, -2, 0], [], [0], [-4]]);
    expect(table.mask().dtype).toBe("bool");
    expect(table.mask().to("int64").toArray()).toEqual([
      [1, 1, 1],
      [0, 0, 0],
      [1, 0, 0],
      [1, 0, 0],
    ]);
    expect(table.sums().toArray()).toEqual([-3, 0, 0, -4]);
    expect(table.means().toArray()).toEqual([-1, 0, 0, -4]);
  });
});

it("propagates gradients, and keeps the dtype", () => {
  scope(() => {
    const values = tensor(
      [
        [1, 2],
        [4, 0],
      ],
      { dtype: "float64", requiresGrad: true },
    );
    const table = new TokenTable(values, [2, 1]);
    expect(table.means().dtype).toBe("float64");
    expect(table.means().detach().toArray()).toEqual([1.5, 4]);
    table.means().sum().backward();
    expect(values.grad!.toArray()).toEqual([
      [0.5, 0.5],
      [1, 1],
    ]);
    expect(table.rows()).toEqual([[1, 2], [4]]);
  });
});

it("supports no rows and empty ones", () => {
  scope(() => {
    expect(TokenTable.ofRows([]).rows()).toEqual([]);
    expect(TokenTable.ofRows([[], []]).sums().toArray()).toEqual([0, 0]);
    expect(TokenTable.ofRows([[], []]).mask().shape).toEqual([2, 0]);
  });
});

it("is kept by a scope as a whole and freed with a tree", () => {
  const before = liveTensors();
  const table = scope(() => TokenTable.ofRows([[-1]]));
  expect(table.rows()).toEqual([[-1]]);
  expect(liveTensors()).toBe(before + 1);
  dispose([table]);
  expect(liveTensors()).toBe(before);
});

it("refuses mismatched values and lengths", () => {
  scope(() => {
    const values = tensor([
      [1, 2],
      [3, 4],
    ]);
    expect(() => new TokenTable(tensor([1]), [1])).toThrow(breaking("shape-mismatch", "TokenTable"));
    expect(() => new TokenTable([[1]] as never, [1])).toThrow(breaking("shape-mismatch", "TokenTable"));
    expect(() => new TokenTable(values, [1])).toThrow(breaking("length-mismatch", "2"));
    expect(() => new TokenTable(values, [1, 3])).toThrow(breaking("out-of-range", "3"));
    expect(() => new TokenTable(values, [1, 0.5])).toThrow(breaking("out-of-range", "0.5"));
  });
});
