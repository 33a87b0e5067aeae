import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import {
  dispose,
  enableGrad,
  heldTensors,
  isGradEnabled,
  keep,
  liveTensors,
  noGrad,
  ones,
  scope,
  tensor,
  zeros,
  type Tensor,
} from "../src/index.js";
import { expectNoLeaks } from "./live-tensors.js";
import { testAddon } from "./test-addon.js";

expectNoLeaks();

describe("scope", () => {
  it("finds the tensors of values with heldTensors, and of no other instances", () => {
    class Pair {
      constructor(
        readonly first: Tensor,
        readonly second: Tensor,
      ) {}
      get [heldTensors](): Tensor[] {
        return [this.first];
      }
    }
    const before = liveTensors();
    const [pair] = scope(() => [new Pair(ones([2]), zeros([2]))]);
    expect(pair!.first.toArray()).toEqual([1, 1]);
    expect(pair!.second.disposed).toBe(true);
    dispose({ pair });
    expect(liveTensors()).toBe(before);
  });

  it("frees what it does not return", () => {
    const before = liveTensors();
    const bytes = testAddon().liveBytes();
    const kept = scope(() => {
      const a = ones([1000]);
      const b = a.add(1);
      expect(liveTensors()).toBe(before + 2);
      expect(testAddon().liveBytes()).toBe(bytes + 8000);
      return b.mul(2);
    });
    expect(liveTensors()).toBe(before + 1);
    expect(kept.toArray()).toEqual(Array.from({ length: 1000 }, () => 4));
    kept.dispose();
    expect(testAddon().liveBytes()).toBe(bytes);
  });

  it("keeps tensors in arrays, objects, maps, sets and cycles of them, and no others", () => {
    const before = liveTensors();
    const tree = scope(() => {
      const t = (value: number) => tensor([value]);
      t(99);
      const loop: { self?: unknown; t: Tensor } = { t: t(6) };
      loop.self = loop;
      return {
        list: [t(1), [t(2)]],
        map: new Map([["k", t(3)]]),
        set: new Set([t(4)]),
        deep: { er: t(5) },
        loop,
        n: null,
      };
    });
    expect(liveTensors()).toBe(before + 6);
    expect(tree.map.get("k")?.item()).toBe(3);
    dispose(tree);
    expect(liveTensors()).toBe(before);
  });

  it("frees tensors that only an instance of a class holds, unless they are kept", () => {
    class Cache {
      constructor(readonly t: Tensor) {}
    }
    const lost = scope(() => new Cache(ones([1])));
    expect(lost.t.disposed).toBe(true);
    const held = scope(() => new Cache(keep(ones([1]))));
    expect(held.t.disposed).toBe(false);
    held.t.dispose();
  });

  it("nests: survivors of an inner scope belong to the outer one", () => {
    const before = liveTensors();
    scope(() => {
      const inner = scope(() => ones([2]));
      expect(inner.toArray()).toEqual([1, 1]);
      expect(liveTensors()).toBe(before + 1);
    });
    expect(liveTensors()).toBe(before);
  });

  it("frees everything when the body throws", () => {
    const before = liveTensors();
    expect(() =>
      scope(() => {
        ones([3]).add(1);
        throw new Error("no");
      }),
    ).toThrow("no");
    expect(liveTensors()).toBe(before);
  });

  it("stays open across awaits, and frees when the promise settles", async () => {
    const before = liveTensors();
    const result = scope(async () => {
      const a = ones([2]);
      await sleep(1);
      const b = a.add(1);
      await sleep(1);
      return b.mul(3);
    });
    expect(liveTensors()).toBe(before + 1);
    const kept = await result;
    expect(liveTensors()).toBe(before + 1);
    expect(kept.toArray()).toEqual([6, 6]);
    kept.dispose();
    await expect(
      scope(async () => {
        ones([2]);
        await sleep(1);
        throw new Error("later");
      }),
    ).rejects.toThrow("later");
    expect(liveTensors()).toBe(before);
  });

  it("does not mix up tasks that run at the same time", async () => {
    const before = liveTensors();
    const task = (value: number, pause: number) =>
      scope(async () => {
        const a = tensor([value]);
        await sleep(pause);
        const b = a.add(1);
        await sleep(pause);
        return b.add(a);
      });
    const [x, y] = await Promise.all([task(1, 5), task(10, 2)]);
    expect([x.item(), y.item()]).toEqual([3, 21]);
    expect(liveTensors()).toBe(before + 2);
    dispose([x, y]);
  });

  it("leaves work that outlives a scope to the enclosing one", async () => {
    const before = liveTensors();
    await scope(async () => {
      let late: Promise<Tensor> | undefined;
      scope(() => {
        late = sleep(1).then(() => ones([1]));
      });
      expect((await late)?.disposed).toBe(false);
    });
    expect(liveTensors()).toBe(before);
  });

  it("does not accumulate objects of tensors disposed in a long loop", () => {
    scope(() => {
      for (let i = 0; i < 5000; i++) ones([1]).dispose();
      const members = (ones([1]).owner as unknown as { members: unknown[] }).members;
      expect(members.length).toBeLessThan(600);
    });
  });
});

describe("dispose", () => {
  it("may be repeated, and makes every later use an error", () => {
    const a = ones([2]);
    const view = a.view([2, 1]);
    a.dispose();
    a.dispose();
    expect(a.disposed).toBe(true);
    expect(() => a.add(1)).toThrow(/^aten::add.Scalar: self has been disposed$/u);
    expect(() => view.add(a)).toThrow(/^aten::add.Tensor: other has been disposed$/u);
    expect(() => a.shape).toThrow(/disposed/u);
    expect(() => a.toTypedArray()).toThrow(/disposed/u);
    expect(() => a.item()).toThrow(/disposed/u);
    expect(() => a.requiresGrad_()).toThrow(/disposed/u);
    expect(() => a.backward()).toThrow(/disposed/u);
    expect(String(a)).toBe("Tensor (disposed)");
    // The memory is kept alive by the view.
    expect(view.toArray()).toEqual([[1], [1]]);
    view.dispose();
  });

  it("never lets a stale handle reach another tensor", () => {
    const a = tensor([1]);
    const stale = a.handle;
    a.dispose();
    const b = tensor([2]);
    expect(b.handle).not.toBe(stale);
    b.dispose();
  });

  it("works through Symbol.dispose", () => {
    const a = ones([2]);
    a[Symbol.dispose]();
    expect(a.disposed).toBe(true);
  });
});

describe("noGrad and enableGrad", () => {
  it("switch recording for the operators inside, also nested and across awaits", async () => {
    const w = ones([2], { requiresGrad: true });
    await scope(async () => {
      expect(w.mul(2).requiresGrad).toBe(true);
      noGrad(() => {
        expect(isGradEnabled()).toBe(false);
        expect(w.mul(2).requiresGrad).toBe(false);
        enableGrad(() => expect(w.mul(2).requiresGrad).toBe(true));
        expect(w.mul(2).requiresGrad).toBe(false);
      });
      const pending = noGrad(async () => {
        await sleep(5);
        return w.mul(2).requiresGrad;
      });
      // The other task has disabled recording only for itself.
      await sleep(1);
      expect(isGradEnabled()).toBe(true);
      expect(w.mul(2).requiresGrad).toBe(true);
      expect(await pending).toBe(false);
    });
    w.dispose();
  });

  it("end when the body throws", () => {
    expect(() =>
      noGrad(() => {
        throw new Error("no");
      }),
    ).toThrow("no");
    expect(isGradEnabled()).toBe(true);
  });
});

describe("the garbage collector", () => {
  it("frees tensors that were not disposed", async () => {
    setFlagsFromString("--expose-gc");
    const gc = runInNewContext("gc") as () => void;
    const before = liveTensors();
    (() => {
      for (let i = 0; i < 100; i++) zeros([10]);
    })();
    for (let i = 0; i < 20 && liveTensors() > before; i++) {
      gc();
      await sleep(5);
    }
    expect(liveTensors()).toBe(before);
  });
});
