import { describe, expect, it } from "vitest";
import {
  createOptimizer,
  cosineSchedule,
  clipGradNorm_,
  Generator,
  Linear,
  liveTensors,
  Module,
  scope,
  tensor,
  type OptimizerName,
  type Tensor,
} from "../src/index.js";

class TwoLayers extends Module {
  private readonly first: Linear;
  private readonly second: Linear;
  constructor(generator: Generator) {
    super();
    this.first = this.registerModule("first", new Linear(2, 16, { generator }));
    this.second = this.registerModule("second", new Linear(16, 1, { generator }));
  }
  /** [B, 2] → [B, 1] */
  forward(input: Tensor): Tensor {
    return this.second.forward(this.first.forward(input).tanh());
  }
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
  it.each(cases)("%s %o, from three seeds, without a tensor left over", (name, options) => {
    const before = liveTensors();
    for (const seed of [0, 1, 2]) {
      scope(() => {
        using generator = new Generator(seed);
        using network = new TwoLayers(generator);
        using optimizer = createOptimizer(name, network.namedParameters(), options);
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
            network.forward(inputs).sub(wanted).square().mean().backward();
            clipGradNorm_(network.parameters(), 1);
            optimizer.learningRate = rate * schedule(step);
            optimizer.step();
          });
          if (step === 1) steady = liveTensors();
        }
        expect(liveTensors()).toBe(steady);
        const outputs = network.eval().forward(inputs).toTypedArray();
        [0, 1, 1, 0].forEach((target, i) => expect(Math.abs(Number(outputs[i]) - target)).toBeLessThan(0.1));
      });
    }
    expect(liveTensors()).toBe(before);
  });
});
