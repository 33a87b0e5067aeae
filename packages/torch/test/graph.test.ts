import { afterEach, describe, expect, it, vi } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import {
  arange,
  dispose,
  graph,
  keep,
  ones,
  scope,
  tensor,
  zeros,
  type GraphInputs,
  type Tensor,
} from "../src/index.js";
import { addon } from "../src/native.js";
import { expectNoLeaks } from "./live-tensors.js";
import { metaDevice } from "./meta-device.js";

const META = metaDevice();
expectNoLeaks();
afterEach(() => {
  vi.restoreAllMocks();
});

const numbers = (given: Tensor) => Array.from(given.toTypedArray(), Number);

describe("a pass on the CPU", () => {
  it("runs again over what the inputs hold now, and writes to the same outputs", () => {
    scope(() => {
      const [x, total] = [tensor([1, 2]), tensor([0, 0])];
      using pass = graph(
        (inputs) => {
          inputs.total.add_(inputs.x);
          return { doubled: inputs.x.mul(2), sum: [inputs.x.sum()] };
        },
        { x, total },
      );
      const { doubled, sum } = pass.outputs;
      total.zero_();
      for (const [first, second] of [
        [3, 4],
        [5, 6],
      ] as const) {
        x.copy_(tensor([first, second]));
        expect(pass.replay()).toBe(pass.outputs);
        expect(numbers(doubled)).toEqual([2 * first, 2 * second]);
        expect(sum[0]!.item()).toBe(first + second);
      }
      expect(numbers(total)).toEqual([8, 10]);
      expect(pass.isCaptured).toBe(false);
    });
  });

  it("may make tensors at its first run that later ones read", () => {
    scope(() => {
      let table: Tensor | null = null;
      using pass = graph(({ x }) => (table ??= keep(tensor([1, 2, 3]))).add(x), { x: ones([3]) });
      expect(numbers(pass.replay())).toEqual([2, 3, 4]);
      table!.dispose();
    });
  });

  it("returns an input as it is, and leaves it to the caller", () => {
    const x = ones([2]);
    const pass = graph((inputs) => inputs.x.add_(1) && inputs.x, { x });
    expect(pass.replay()).toBe(x);
    pass.dispose();
    pass.dispose();
    expect(numbers(x)).toEqual([4, 4]);
    expect(() => pass.replay()).toThrow(breaking("graph-disposed", "graph"));
    x.dispose();
  });

  it("reads weights that were changed in place", () => {
    scope(() => {
      const weight = tensor([1, 2]);
      using pass = graph(({ x }) => x.mul(weight), { x: tensor([3, 4]) }, { constants: () => [weight] });
      weight.copy_(tensor([10, 20]));
      expect(numbers(pass.replay())).toEqual([30, 80]);
    });
  });

  it("records no gradients", () => {
    scope(() => {
      const weight = tensor([1, 2], { requiresGrad: true });
      using pass = graph(({ x }) => x.mul(weight), { x: tensor([3, 4]) });
      expect(pass.outputs.requiresGrad).toBe(false);
    });
  });
});

/** What a graph would not repeat, or repeat wrongly: by its rule, what the message names, and a pass that does it. */
const violations: [
  title: string,
  rule: string,
  named: string,
  make: (device: string) => { fn: (inputs: GraphInputs & { x: Tensor }) => unknown; meanwhile?: () => void },
][] = [
  ["reads a number", "readback-in-graph", "item", () => ({ fn: ({ x }) => void x.sum().item() })],
  ["reads numbers", "readback-in-graph", "copyData", () => ({ fn: ({ x }) => void x.toTypedArray() })],
  ["asks how many there are", "readback-in-graph", "nonzero", () => ({ fn: ({ x }) => x.nonzero() })],
  [
    "makes a tensor of numbers of JavaScript",
    "host-copy-in-graph",
    "fromData",
    (device) => ({ fn: ({ x }) => x.add(tensor([1, 2, 3], { device })) }),
  ],
];

for (const device of ["cpu", META]) {
  describe(`a pass on ${device} is refused if it`, () => {
    const x = () => ones([3], { device });

    it.each(violations)("%s", (_, rule, named, make) => {
      // What numbers there are, the meta device does not know.
      vi.spyOn(addon(), "item").mockReturnValue(0);
      vi.spyOn(addon(), "copyData").mockReturnValue();
      scope(() => {
        expect(() => graph(make(device).fn, { x: x() })).toThrow(breaking(rule, named));
      });
    });

    it("depends on a number that changes", () => {
      scope(() => {
        let position = 1;
        using pass = graph((inputs) => inputs.x.narrow(0, 0, 1).add(position), { x: x() });
        pass.replay();
        position = 2;
        expect(() => pass.replay()).toThrow(breaking("number-changed", "must be 1"));
      });
    });

    it("takes another length", () => {
      scope(() => {
        let length = 2;
        using pass = graph(() => arange(0, length, 1, { device }).add(1), { x: x() });
        length = 3;
        expect(() => pass.replay()).toThrow(breaking("number-changed", "aten::arange"));
      });
    });

    it("calls something else, or more, or less", () => {
      scope(() => {
        let kind = "add";
        const fn = (inputs: { x: Tensor }) => {
          if (kind === "less") return inputs.x.exp();
          const first = kind === "mul" ? inputs.x.exp().mul(inputs.x) : inputs.x.exp().add(inputs.x);
          return kind === "more" ? first.neg() : first;
        };
        using pass = graph(fn, { x: x() });
        for (const [other, named] of [
          ["mul", "is aten::mul.Tensor, and was aten::add.Tensor"],
          ["more", "goes on with aten::neg"],
          ["less", "ends before aten::add.Tensor"],
        ] as const) {
          kind = other;
          expect(() => pass.replay()).toThrow(breaking("calls-changed", named));
        }
        kind = "add";
        pass.replay();
      });
    });

    it("combines other tensors of its own", () => {
      scope(() => {
        let isTurned = false;
        using pass = graph(
          (inputs) => {
            const [a, b] = [inputs.x.exp(), inputs.x.neg()];
            return isTurned ? b.sub(a) : a.sub(b);
          },
          { x: x() },
        );
        isTurned = true;
        expect(() => pass.replay()).toThrow(breaking("calls-changed", "is another tensor"));
      });
    });

    it("reads a weight that was replaced", () => {
      scope(() => {
        let weight = ones([3], { device });
        using pass = graph((inputs) => inputs.x.mul(weight), { x: x() });
        const first = weight;
        weight = zeros([3], { device });
        expect(() => pass.replay()).toThrow(breaking("constant-changed", "aten::mul.Tensor"));
        weight = first;
        pass.replay();
        first.dispose();
        expect(() => pass.replay()).toThrow(breaking("constant-changed", "float32[3]"));
      });
    });

    it("is told of a weight that is another now, whether or not it reads it", () => {
      scope(() => {
        const weights = [ones([3], { device }), ones([2], { device })];
        using pass = graph((inputs) => inputs.x.neg(), { x: x() }, { constants: () => weights });
        weights[1] = zeros([2], { device });
        expect(() => pass.replay()).toThrow(breaking("constant-changed", "number 2"));
        weights.pop();
        expect(() => pass.replay()).toThrow(breaking("constant-changed", "their number"));
      });
    });

    it("keeps a tensor from one run to the next", () => {
      scope(() => {
        const made = [zeros([3], { device })];
        const step = (inputs: { x: Tensor }) => void made.push(keep(made.at(-1)!.add(inputs.x)));
        using pass = graph(step, { x: x() });
        expect(() => pass.replay()).toThrow(breaking("constant-changed", "aten::add.Tensor"));
        dispose(made);
      });
    });

    it("is given another input, or one of another layout", () => {
      scope(() => {
        const inputs: { x: Tensor; more: Tensor[] } = {
          x: ones([2, 3], { device }),
          more: [ones([2], { device })],
        };
        using pass = graph((given) => given.x.sum(), inputs);
        const [first] = inputs.more;
        const others: [key: "x" | "more", make: () => Tensor, named: string][] = [
          ["x", () => ones([2, 3], { device }), "x must be where it was"],
          ["x", () => ones([2, 4], { device }), "x must be float32[2, 3]"],
          ["x", () => ones([2, 3], { device, dtype: "float64" }), "x must be float32[2, 3]"],
          ["x", () => ones([3, 2], { device }).t(), "strides [1, 2]"],
          ["more", () => ones([2], { device }), "more[0] must be where it was"],
        ];
        const { x: own } = inputs;
        for (const [key, make, named] of others) {
          if (key === "x") inputs.x = make();
          else inputs.more[0] = make();
          expect(() => pass.replay()).toThrow(breaking("input-changed", named));
          Object.assign(inputs, { x: own, more: [first] });
          pass.replay();
        }
        inputs.more.pop();
        expect(() => pass.replay()).toThrow(breaking("input-changed", "their names"));
        inputs.more.push(first!);
        own.dispose();
        expect(() => pass.replay()).toThrow(breaking("input-changed", "disposed"));
      });
    });

    it.each([
      ["shape", (a: Tensor) => a.narrow(0, 0, 2), (a: Tensor) => a.narrow(0, 0, 1)],
      ["strides", (a: Tensor) => a.unsqueeze(1).expand([3, 2]), (a: Tensor) => a.unsqueeze(1).repeat([1, 2])],
      ["dtype", (a: Tensor) => a, (a: Tensor) => a.to("float64")],
    ])("returns a result of another %s", (_, first, second) => {
      scope(() => {
        // Tensors that the pass only returns are not seen by its calls.
        const results = [first(x()), second(x())];
        let time = 0;
        using pass = graph(() => ({ result: results[time]! }), { x: x() });
        time = 1;
        expect(() => pass.replay()).toThrow(breaking("output-changed", "number 1"));
      });
    });

    it("returns more or fewer results", () => {
      scope(() => {
        let isMore = false;
        const two = [x(), x()];
        using pass = graph((inputs) => (isMore ? [inputs.x, ...two] : two), { x: x() });
        isMore = true;
        expect(() => pass.replay()).toThrow(breaking("output-changed", "their number"));
      });
    });
  });
}

it("frees what it made when its pass is refused", () => {
  const x = ones([3]);
  expect(() => graph((inputs) => [inputs.x.add(1), inputs.x.sum().item()], { x })).toThrow(
    breaking("readback-in-graph", "item"),
  );
  expect(() =>
    graph(
      () => {
        throw new Error("planted");
      },
      { x },
    ),
  ).toThrow("planted");
  x.dispose();
});

it("refuses copies between the host and a device", () => {
  scope(() => {
    const x = ones([3], { device: META });
    let runs = 0;
    // libtorch itself refuses to read from the meta device, when the runs are not yet watched.
    const read = (inputs: { x: Tensor }) => ((runs += 1) > 1 ? inputs.x.to("cpu") : inputs.x);
    expect(() => graph(read, { x })).toThrow(breaking("host-copy-in-graph", "aten::to.dtype_layout"));
    const host = ones([3]);
    expect(() => graph((inputs) => void inputs.x.copy_(host), { x })).toThrow(
      breaking("host-copy-in-graph", "aten::copy_"),
    );
  });
});

describe("on a GPU", () => {
  /** The device of the inputs, and what captures: a GPU is not there. */
  function onGpu(capture: (pass: () => void, warmUps: number) => number) {
    const native = addon();
    vi.spyOn(native, "describe").mockImplementation(() => [6, 257, "cuda:0", 3]);
    return vi.spyOn(native, "captureGraph").mockImplementation((_, warmUps, pass) => capture(pass, warmUps));
  }

  it("is captured after three runs, and replayed without running again", () => {
    const x = ones([3], { device: META });
    let runs = 0;
    const capture = onGpu((pass, warmUps) => {
      for (let time = 0; time <= warmUps; time += 1) pass();
      return 77;
    });
    const replay = vi.spyOn(addon(), "replayGraph").mockReturnValue();
    const release = vi.spyOn(addon(), "releaseGraph").mockReturnValue();
    const pass = graph((inputs) => (runs += 1) && inputs.x.add(1), { x: onDevice(x) });
    expect([pass.isCaptured, runs, capture.mock.calls.length]).toEqual([true, 4, 1]);
    const { outputs } = pass;
    expect(pass.replay()).toBe(outputs);
    expect([runs, replay.mock.calls]).toEqual([4, [[77]]]);
    pass.dispose();
    pass.dispose();
    expect(release.mock.calls).toEqual([[77]]);
    x.dispose();
  });

  it("is launched plainly where it cannot be captured, with one warning", () => {
    const x = ones([3], { device: META });
    let runs = 0;
    const warn = vi.fn();
    onGpu((pass, warmUps) => {
      for (let time = 0; time <= warmUps; time += 1) pass();
      throw new Error("operation not permitted");
    });
    const pass = graph((inputs) => (runs += 1) && inputs.x.add(1), { x: onDevice(x) }, { warn });
    expect([pass.isCaptured, runs]).toEqual([false, 4]);
    pass.replay();
    pass.replay();
    expect([runs, warn.mock.calls]).toEqual([6, [[expect.stringContaining("operation not permitted")]]]);
    pass.dispose();
    x.dispose();
  });

  it("is launched plainly by an engine without graphs", () => {
    const x = ones([3], { device: META });
    const warn = vi.fn();
    vi.spyOn(addon(), "describe").mockImplementation(() => [6, 257, "cuda:0", 3]);
    const pass = graph((inputs) => inputs.x.add(1), { x: onDevice(x) }, { warn });
    expect(warn.mock.calls).toEqual([[expect.stringContaining("built without CUDA graphs")]]);
    pass.replay();
    pass.dispose();
    x.dispose();
  });

  it("is refused where its runs before the capture differ", () => {
    const x = ones([3], { device: META });
    const warn = vi.fn();
    onGpu((pass, warmUps) => {
      for (let time = 0; time <= warmUps; time += 1) pass();
      return 77;
    });
    let number = 0;
    expect(() => graph((inputs) => inputs.x.add((number += 1)), { x: onDevice(x) }, { warn })).toThrow(
      breaking("number-changed", "aten::add"),
    );
    expect(warn).not.toHaveBeenCalled();
    x.dispose();
  });
});

/** A tensor that says that it is on a GPU. */
function onDevice(given: Tensor): Tensor {
  Object.defineProperty(given, "device", { value: "cuda:0" });
  return given;
}
