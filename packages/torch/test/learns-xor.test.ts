import { describe, expect, it } from "vitest";
import {
  createOptimizer,
  cosineSchedule,
  clipGradNorm_,
  Generator,
  linear,
  liveTensors,
  noGrad,
  rand,
  scope,
  tensor,
  type OptimizerName,
  type Tensor,
} from "../src/index.js";

/** [2 → 16 → 1], initial values as in PyTorch's Linear: from U(−1/√inputs, 1/√inputs). */
function twoLayers(generator: Generator): Map<string, Tensor> {
  const drawn = (shape: number[], inputs: number) =>
    rand(shape, { generator }).mul_(2).sub_(1).div_(Math.sqrt(inputs)).requiresGrad_(true);
  return new Map([
    ["first.weight", drawn([16, 2], 2)],
    ["first.bias", drawn([16], 2)],
    ["second.weight", drawn([1, 16], 16)],
    ["second.bias", drawn([1], 16)],
  ]);
}

/** [B, 2] → [B, 1] */
function forward(network: ReadonlyMap<string, Tensor>, input: Tensor): Tensor {
  const layer = (x: Tensor, name: string) =>
    linear(x, network.get(`${name}.weight`)!, network.get(`${name}.bias`)!);
  return layer(layer(input, "first").tanh(), "second");
}

// No linear function is within 0.5 of XOR at all four points: the hidden layer must have learnt something.
describe("a network of two layers learns XOR with", () => {
  const cases: [OptimizerName, Record<string, unknown>][] = [
    ["adam", { learningRate: 0.02 }],
    ["adamw", { learningRate: 0.02 }],
    ["adamw", { learningRate: 0.02, fused: false }],
    ["sgd", { learningRate: 0.1, momentum: 0.9, nesterov: true }],
    ["rmsprop", { learningRate: 0.01 }],
    ["adagrad", { learningRate: 0.1 }],
  ];
  it.each(cases)("%s %o, from three seeds, without leaking tensors", (name, options) => {
    const before = liveTensors();
    for (const seed of [0, 1, 2]) {
      scope(() => {
        using generator = new Generator(seed);
        const network = twoLayers(generator);
        using optimizer = createOptimizer(name, network, options);
        const rate = optimizer.learningRate;
        const schedule = cosineSchedule({ warmupSteps: 20, totalSteps: 400 });
        const inputs = tensor([
          [0, 0],
          [0, 1],
          [1, 0],
          [1, 1],
        ]);
        const wanted = tensor([[0], [1], [1], [0]]);
        let steady = 0;
        for (let step = 0; step < 400; step += 1) {
          scope(() => {
            optimizer.zeroGrad();
            forward(network, inputs).sub(wanted).square().mean().backward();
            clipGradNorm_(network.values(), 1);
            optimizer.learningRate = rate * schedule(step);
            optimizer.step();
          });
          if (step === 1) steady = liveTensors();
        }
        expect(liveTensors()).toBe(steady);
        const outputs = noGrad(() => forward(network, inputs).toTypedArray());
        [0, 1, 1, 0].forEach((target, i) => expect(Math.abs(Number(outputs[i]) - target)).toBeLessThan(0.1));
      });
    }
    expect(liveTensors()).toBe(before);
  });
});
