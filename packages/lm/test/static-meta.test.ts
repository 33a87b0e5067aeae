/**
 * Every step of a generation on libtorch's meta device is the first one, call by call: what `graph` compares there is what a GPU
 * would replay. The device has no numbers; static-decoding.test.ts compares these.
 */
import { noGrad, scope } from "@astra-rl/torch";
import { afterEach, describe, expect, it, vi } from "vitest";
import {
  DecodeGraphs,
  GenerationSession,
  type CausalLM,
  type Sampling,
  type Tokenizer,
} from "../src/index.js";
import { StaticStep } from "../src/generation/static/static-step.js";
import { expectNoLeaks } from "../../torch/test/live-tensors.js";
import { goldenCausal } from "./golden/families.js";
import { answerReadbacks, countCalls, onMeta } from "./on-meta.js";

const counter = countCalls();
expectNoLeaks();
afterEach(() => {
  vi.restoreAllMocks();
});

function generate(model: CausalLM, tokenizer: Tokenizer, graphs: DecodeGraphs, sampling: Sampling): void {
  const prompts = [[1, 2, 3], [4, 5], [6]];
  using session = GenerationSession.open(model, tokenizer, prompts, { endIds: [7], graphs });
  const keys = prompts.map((_, node) => ({ seed: 0, stream: "tester", episode: 0, node }));
  session.generate(sampling, keys);
}

describe.each(goldenCausal)("$name", ({ folder }) => {
  it.each([
    ["float32", "float32"],
    ["bfloat16", "bfloat16"],
    ["float32", "bfloat16"],
  ] as const)("repeats one step: weights in %s, products in %s", async (dtype, computeDtype) => {
    const { model, tokenizer } = await onMeta(folder, dtype, computeDtype);
    answerReadbacks();
    const run = vi.spyOn(StaticStep.prototype, "run");
    const graphs = new DecodeGraphs(model);
    const sampling = { maxNewTokens: 18, topK: 5, topP: 0.9, minNewTokens: 3, repetitionPenalty: 1.2 };
    generate(model, tokenizer, graphs, sampling);
    // What was made of the weights, such as norms in float32, must stay where it is.
    const parameters = [...model.namedParameters().values()];
    scope(() => noGrad(() => parameters.forEach((each) => each.mul_(1.5))));
    generate(model, tokenizer, graphs, sampling);
    const steps = run.mock.calls.reduce((sum, [count]) => sum + count, 0);
    expect(steps).toBe(2 * 17);
    graphs.dispose();
    model.dispose();
  });
});

it("takes one copy from the host, and reads the tokens, for all steps between two checks", async () => {
  const { model, tokenizer } = await onMeta(goldenCausal[0]!.folder, "bfloat16");
  const readbacks = answerReadbacks();
  const graphs = new DecodeGraphs(model);
  const counts = [9, 17, 25].map((maxNewTokens) => {
    generate(model, tokenizer, graphs, { maxNewTokens });
    counter.taken();
    const reads = readbacks.count();
    generate(model, tokenizer, graphs, { maxNewTokens });
    return { copies: counter.taken().copies, reads: readbacks.count() - reads };
  });
  const [less, more, most] = counts as [Calls, Calls, Calls];
  expect([more.copies - less.copies, more.reads - less.reads]).toEqual([1, 2]);
  expect([most.copies - more.copies, most.reads - more.reads]).toEqual([1, 2]);
  graphs.dispose();
  model.dispose();
});

interface Calls {
  copies: number;
  reads: number;
}
