import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { operatorNames } from "../src/operator-names.generated.js";
import { dtypeFacts, type DType } from "../src/dtype.js";
import { ones, scope, Tensor, tensor } from "../src/index.js";
import { laterOperators, operatorTable } from "../scripts/operator-table.mjs";
import { testAddon } from "./test-addon.js";
import { camelCase, disagreement, goldenCases, resultOf, type Tolerance } from "./golden-cases.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

/** A few units in the last place of the dtype. */
const tolerance: Tolerance = { float32: 3e-6, float64: 1e-9, bfloat16: 1e-2, float16: 1e-3 };

const cases = goldenCases();
const names = [...new Set(cases.map((item) => item.name))];

describe("operators against PyTorch's values", () => {
  it.each(names)("%s", (name) => {
    for (const [index, item] of cases.filter((candidate) => candidate.name === name).entries()) {
      scope(() => {
        const { result, values } = resultOf(item);
        expect(disagreement(result, item.expected, tolerance, `${name} case ${index}`)).toBeNull();
        if (name.endsWith("_")) expect(result, `${name} returns the tensor it was called on`).toBe(values[0]);
      });
    }
  });
});

describe("the list of operators", () => {
  it("has a wrapper and a golden value for every name", () => {
    // These draw from the default generator or return uninitialized memory: their values are tested below.
    const withoutGolden = new Set(["empty_like", "rand_like", "randn_like"]);
    for (const [name] of operatorTable) {
      const isMethod = camelCase(name) in Tensor.prototype;
      const isFunction = name in Tensor.prototype || names.includes(name);
      expect(isMethod || isFunction, `${name} is reachable`).toBe(true);
      expect(names.includes(name) || withoutGolden.has(name), `${name} has a golden value`).toBe(true);
    }
  });

  it("exists in the loaded libtorch with arguments in the order that the wrappers pass", () => {
    const written = JSON.parse(
      readFileSync(new URL("golden/schemas.json", import.meta.url), "utf8"),
    ) as Record<string, string>;
    const parametersOf = (schema: string) => {
      const list = schema.slice(schema.indexOf("(") + 1, schema.lastIndexOf(") ->"));
      return list
        .split(/,\s(?![^[]*\])/u)
        .flatMap((part) => (part === "*" ? [] : [/(\w+)(?:=.*)?$/u.exec(part)?.[1]]));
    };
    expect(parametersOf("aten::f(Tensor(a!) self, int[2] dim=[0, 1], *, bool? keep=None) -> Tensor")).toEqual(
      ["self", "dim", "keep"],
    );
    expect(Object.keys(written)).toEqual([...operatorNames]);
    for (const name of operatorNames) {
      const schema = testAddon().schema(name);
      if (schema === null && name in laterOperators) continue;
      if (schema === null) throw new Error(`the loaded libtorch has no ${name}`);
      const expected = parametersOf(written[name] as string);
      // A later libtorch may add arguments after those that the wrapper passes.
      expect(parametersOf(schema).slice(0, expected.length), name).toEqual(expected);
    }
  });

  it("draws rand_like and randn_like in their ranges, with the template's shape and dtype", () => {
    scope(() => {
      const model = ones([40, 50], { dtype: "float64" });
      const uniform = model.randLike();
      expect(uniform.dtype).toBe("float64");
      expect(uniform.amin([0, 1]).item()).toBeGreaterThanOrEqual(0);
      expect(uniform.amax([0, 1]).item()).toBeLessThan(1);
      // Standard error of the mean of 2000 draws is 0.0065; ten standard errors never fail by chance.
      expect(Math.abs(uniform.mean().item() - 0.5)).toBeLessThan(0.065);
      const normal = model.randnLike();
      expect(Math.abs(normal.mean().item())).toBeLessThan(0.23);
      expect(Math.abs(normal.std().item() - 1)).toBeLessThan(0.2);
      expect(model.emptyLike().shape).toEqual([40, 50]);
    });
  });
});

describe("arguments of the wrappers", () => {
  it("refuse with the operator's name, the rule and the value", () => {
    scope(() => {
      const a = tensor([[1, 2]]);
      expect(() => a.matmul(tensor([1, 2, 3]))).toThrow(/^aten::matmul: .*float32\[1, 2\].*float32\[3\]/u);
      expect(() => a.reshape([5])).toThrow(/^aten::reshape: .*\[5\]/u);
      expect(() => a.select(7, 0)).toThrow(/^aten::select.int: .*7/u);
      // @ts-expect-error a string is no tensor
      expect(() => a.matmul("b")).toThrow(`aten::matmul: argument 'other' must be a Tensor, got "b"`);
      // @ts-expect-error a fraction is not a dimension, and the engine refuses it
      expect(() => a.softmax(0.5, 3)).toThrow(/aten::softmax.int: dtype must be a supported dtype, got 3/u);
      expect(() => a.softmax(0.5)).toThrow(
        "aten::softmax.int: dim must be a safe integer, got the number 0.5",
      );
      // @ts-expect-error not a reduction
      expect(() => a.mseLoss(a, "median")).toThrow(`reduction must be "none", "mean" or "sum", got "median"`);
      // @ts-expect-error too many arguments for any form of sum
      expect(() => a.sum([0], true, {}, 4)).not.toThrow();
      // @ts-expect-error sum takes no string
      expect(() => a.sum("0")).toThrow(/options object/u);
    });
  });

  it("keep integer tensors with integers and widen them with fractions", () => {
    scope(() => {
      const whole = tensor([1, 2], { dtype: "int64" });
      expect(whole.mul(2).dtype).toBe("int64");
      expect(whole.mul(2.5).dtype).toBe("float32");
      expect(whole.mul(2.5).toArray()).toEqual([2.5, 5]);
    });
  });

  it("return a new handle even if the operator had nothing to do", () => {
    scope(() => {
      const a = tensor([1, 2]);
      const same = a.contiguous();
      expect(same).not.toBe(a);
      same.dispose();
      expect(a.toArray()).toEqual([1, 2]);
    });
  });

  it("have the codes of all dtypes", () => {
    scope(() => {
      for (const dtype of Object.keys(dtypeFacts) as DType[]) expect(ones([2], { dtype }).dtype).toBe(dtype);
    });
  });
});
