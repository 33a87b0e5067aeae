import { liveTensors, scope, tensor, zeros } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { finite } from "../src/read-parameters.js";

it.each(["float32", "bfloat16", "float16", "float64"] as const)(
  "finite weights in %s pass, others not",
  (dtype) => {
    const before = liveTensors();
    scope(() => {
      const options = { dtype, device: "cpu" } as const;
      const check = (numbers: readonly number[]) =>
        finite(tensor([...numbers], { dtype: "float32" }), "model.safetensors", "a.weight", options);
      expect(check([0, -3, 6e4]).dtype).toBe(dtype);
      for (const wrong of [NaN, Infinity, -Infinity]) {
        expect(() => check([1, wrong, 2])).toThrow(UsageError);
        expect(() => check([1, wrong, 2])).toThrow(
          breaking("not-finite", "model.safetensors: tensor a.weight"),
        );
      }
      finite(zeros([0, 4], { dtype }), "model.safetensors", "empty", options);
    });
    expect(liveTensors()).toBe(before);
  },
);
