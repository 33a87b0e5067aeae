/** Work whose n-th allocation fails: it is refused, nothing leaks, and the next attempt gives the correct result. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { AstraError } from "@astra-rl/base";
import {
  AdamW,
  autocastLinear,
  autocastRmsNorm,
  emptyCache,
  fusedAttention,
  geluTanh,
  liveTensors,
  manualSeed,
  openSafetensors,
  randn,
  scope,
  selectiveLogSoftmax,
  setThreads,
  sortedTopK,
  tensor,
  writeSafetensors,
  type Tensor,
} from "../src/index.js";
import { testAddon } from "../test/test-addon.js";
import type { Fuzzer, Outcome } from "./harness.js";
import type { Random } from "./random.js";
import { bytesOfHandle } from "./values.js";

let folder = "";

/** A typical layer, its loss and its gradients. */
function layer(random: Random): Tensor[] {
  const [tokens, width, heads] = [random.integer(1, 40), 8 * random.integer(1, 8), 2];
  const parameters = {
    attention: randn([3 * width, width])
      .mul(0.1)
      .detach()
      .requiresGrad_(),
    up: randn([4 * width, width])
      .mul(0.1)
      .detach()
      .requiresGrad_(),
    down: randn([width, 4 * width])
      .mul(0.1)
      .detach()
      .requiresGrad_(),
    norm: randn([width]).requiresGrad_(),
  };
  const input = randn([1, tokens, width]).to("bfloat16");
  const linear = { dtype: "bfloat16" } as const;
  const normed = autocastRmsNorm(input, parameters.norm, { epsilon: 1e-5, dtype: "bfloat16" });
  const parts = autocastLinear(normed, parameters.attention, null, linear).view([
    1,
    tokens,
    3,
    heads,
    width / heads,
  ]);
  const [q, k, v] = [0, 1, 2].map((at) => parts.select(2, at).transpose(1, 2)) as [Tensor, Tensor, Tensor];
  const attended = fusedAttention(q, k, v, [], 0.3) ?? q.transpose(1, 2).reshape([1, tokens, width]);
  const hidden = geluTanh(autocastLinear(attended, parameters.up, null, linear));
  const logits = autocastLinear(hidden, parameters.down, null, linear).view([tokens, width]);
  const chosen = tensor(BigInt64Array.from({ length: tokens }, (_, at) => BigInt(at * width)));
  const loss = selectiveLogSoftmax(logits, chosen, "float32").sum();
  loss.backward();
  const optimizer = new AdamW(Object.values(parameters), { learningRate: 1e-3 });
  try {
    optimizer.step();
  } finally {
    optimizer.dispose();
  }
  return [loss.detach(), ...Object.values(parameters).flatMap((each) => [each.detach(), each.grad!])];
}

function plainOperators(random: Random): Tensor[] {
  const x = randn([random.integer(1, 30), random.integer(1, 30)]).requiresGrad_();
  const y = x.matmul(x.t()).softmax(-1).mul(x.sum()).logSoftmax(0);
  y.square().mean().backward();
  return [y.detach(), x.grad!, ...x.sort(-1), ...x.detach().topk(1), x.cumsum(0).detach()];
}

function file(random: Random): Tensor[] {
  const path = join(folder, "allocations.safetensors");
  writeSafetensors(path, { a: randn([random.integer(0, 50), 7]), b: randn([3]).to("bfloat16") });
  using opened = openSafetensors(path);
  return [...opened.tensors.keys()].map((name) => opened.read(name));
}

function ranks(random: Random): Tensor[] {
  const logits = randn([random.integer(1, 5), random.integer(20, 400)]);
  const { values, indices } = sortedTopK(logits, 5);
  return [values, indices];
}

const works = { layer, plainOperators, file, ranks };

/** The result of the work, as text. */
function run(work: (random: Random) => Tensor[], salt: number, random: () => Random): string {
  return scope(() => {
    manualSeed(salt);
    return work(random())
      .map((each) => Buffer.from(bytesOfHandle(each.handle)!).toString("base64"))
      .join();
  });
}

export const allocations: Fuzzer = {
  about: "work whose n-th allocation fails",

  prepare(where) {
    folder = where;
    writeFileSync(join(folder, "allocations.safetensors"), "");
    setThreads(2);
  },

  run(random, tell): Outcome {
    const native = testAddon();
    const name = random.pick(Object.keys(works) as (keyof typeof works)[]);
    const salt = random.integer(0, 2 ** 31 - 1);
    const copy = () => random.fork(salt);
    const expected = run(works[name], salt, copy);
    // The work allocates fewer times than this, so it succeeded.
    native.failAllocation(1_000_000);
    run(works[name], salt, copy);
    const all = 1_000_000 - native.failAllocation(-1);
    const after = random.integer(0, all - 1);
    tell(`${name} of ${salt}, allocation ${after} of ${all}`);
    const before = liveTensors();
    let refused: string | null = null;
    native.failAllocation(after);
    try {
      run(works[name], salt, copy);
    } catch (error) {
      if (!(error instanceof AstraError) || error.message.startsWith("internal:")) throw error;
      refused = error.message;
    } finally {
      native.failAllocation(-1);
    }
    if (liveTensors() !== before) throw new Error(`${liveTensors() - before} tensors stay behind`);
    if (run(works[name], salt, copy) !== expected) throw new Error("the next attempt gives other numbers");
    if (random.chance(0.01)) emptyCache();
    return { refused };
  },
};
