/**
 * Everything that does not explicitly use the CPU runs on libtorch's "meta" device, which computes shapes, types and
 * devices but no numbers: the code path of CUDA, on a machine without it. A tensor on the wrong device, a CPU kernel or
 * a mismatched shape causes an error there as it would on a GPU.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  AdamW,
  clipGradNorm_,
  liveTensors,
  noGrad,
  scope,
  Tensor,
  type DType,
  type TypedArray,
} from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { familyOf } from "../src/families/index.js";
import { GenerationSession, loadCausalLM, tokenLogprobs } from "../src/index.js";
import { JsonFields, parseJsonObject } from "../src/json-fields.js";
import { metaDevice } from "../../torch/test/meta-device.js";
import { goldenCausal } from "./golden/families.js";

const META = metaDevice();

/** Values read back from the device are made up, since it has no numbers. */
function answerReadbacks(): { readonly count: () => number } {
  let count = 0;
  const typed = Reflect.get(Tensor.prototype, "toTypedArray") as (this: Tensor) => TypedArray;
  vi.spyOn(Tensor.prototype, "toTypedArray").mockImplementation(function (this: Tensor) {
    if (this.device !== META) return typed.call(this);
    count += 1;
    const size = this.numel();
    return this.dtype === "int64"
      ? new BigInt64Array(size)
      : this.dtype === "int32"
        ? new Int32Array(size)
        : new Float32Array(size);
  });
  const item = Reflect.get(Tensor.prototype, "item") as (this: Tensor) => number;
  vi.spyOn(Tensor.prototype, "item").mockImplementation(function (this: Tensor) {
    if (this.device !== META) return item.call(this);
    count += 1;
    return 0;
  });
  return { count: () => count };
}

let before = 0;
beforeEach(() => {
  before = liveTensors();
});
afterEach(() => {
  vi.restoreAllMocks();
  expect(liveTensors()).toBe(before);
});

/** A golden model with parameters on the device and with the given types. */
async function onMeta(folder: string, dtype: DType, computeDtype: DType = dtype) {
  const { model, tokenizer } = await loadCausalLM(folder);
  const place = join(folder, "config.json");
  const fields = new JsonFields(parseJsonObject(readFileSync(place), place), place);
  const family = familyOf(fields);
  const parameters = moved(model.namedParameters(), dtype);
  model.dispose();
  return { model: family.create(family.parseConfig(fields), parameters, computeDtype), tokenizer };
}

const moved = (parameters: ReadonlyMap<string, Tensor>, dtype: DType) =>
  noGrad(
    () =>
      new Map(
        [...parameters].map(([name, parameter]) => [name, parameter.to({ dtype, device: META })] as const),
      ),
  );

const types = [
  ["float32", "float32"],
  ["bfloat16", "bfloat16"],
  ["float32", "bfloat16"],
] as const;

describe.each(goldenCausal)("the causal model $name", ({ folder, expected }) => {
  const rows = expected.pairs.map(({ contextIds, continuationIds }) => ({
    context: contextIds,
    continuation: continuationIds,
  }));
  const longest = Math.max(...rows.map((row) => row.continuation.length));

  it.each(types)(
    "computes log-probabilities and is updated: weights in %s, products in %s",
    async (dtype, computeDtype) => {
      const { model } = await onMeta(folder, dtype, computeDtype);
      answerReadbacks();
      for (const packed of [true, false]) {
        noGrad(() =>
          scope(() => {
            const logprobs = tokenLogprobs(model, rows, { packed });
            expect([logprobs.device, logprobs.shape]).toEqual([META, [rows.length, longest]]);
          }),
        );
      }
      const parameters = [...model.namedParameters().values()];
      for (const parameter of parameters) parameter.requiresGrad_();
      const optimizer = new AdamW(parameters, { learningRate: 1e-3 });
      scope(() => tokenLogprobs(model, rows).sum().neg().backward());
      for (const { grad, dtype: own, shape } of parameters) {
        expect([grad?.device, grad?.dtype, grad?.shape]).toEqual([META, own, shape]);
      }
      scope(() => noGrad(() => void clipGradNorm_(parameters, 1)));
      optimizer.step();
      optimizer.dispose();
      const copy = model.copy("bfloat16");
      copy.copyFrom(model);
      copy.dispose();
      model.dispose();
    },
  );

  it.each(["float32", "bfloat16"] as const)("generates, is forked and rewritten in %s", async (dtype) => {
    const { model, tokenizer } = await onMeta(folder, dtype);
    const readbacks = answerReadbacks();
    const prompts = rows.map(({ context }) => context);
    const session = GenerationSession.open(model, tokenizer, prompts, { reserve: 8, endIds: [] });
    const keys = prompts.map((_, node) => ({ seed: 0, stream: "tester", episode: 0, node }));
    const said = session.generate({ maxNewTokens: 4, temperature: 0.8, topK: 5, topP: 0.9 }, keys);
    expect(said.ids.map((ids) => ids.length)).toEqual(prompts.map(() => 4));
    expect(readbacks.count()).toBeGreaterThan(0);
    const forked = session.fork(prompts.map((_, row) => row));
    expect(forked.read(prompts.map(() => [1, 2])).map((row) => row.length)).toEqual(prompts.map(() => 2));
    forked.rewrite(prompts.map((ids) => [...ids, 3]));
    forked.prefill();
    forked.dispose();
    session.dispose();
    model.dispose();
  });
});
