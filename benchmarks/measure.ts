/** Repeated timings, and the machine's own rates at the same time. */
import { loadavg } from "node:os";
import { autocastLinear, noGrad, randn, scope, type DType, type Tensor } from "@astra-rl/torch";

export interface Timing {
  /** Seconds. */
  median: number;
  minimum: number;
  runs: number;
}

/** Times a function, after one run that is not counted. */
export async function time(runs: number, work: () => unknown): Promise<Timing> {
  const seconds: number[] = [];
  for (let run = 0; run <= runs; run++) {
    const started = performance.now();
    await work();
    if (run > 0) seconds.push((performance.now() - started) / 1000);
  }
  seconds.sort((a, b) => a - b);
  return { median: median(seconds), minimum: seconds[0]!, runs };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Rates that this machine reached in this run: the reference for other figures. */
export interface Roofline {
  /** Floating-point operations per second of a large square product: libtorch's or, if faster, this engine's. */
  gemm: Record<"float32" | "bfloat16", number>;
  /** Bytes per second, read plus written, of a copy that is far larger than the caches. */
  copy: number;
  /** Bytes per second of reading alone, the bound of decoding: finding the maximum of a long list. */
  read: number;
}

function matrix(rows: number, columns: number, dtype: DType): Tensor {
  return scope(() => randn([rows, columns]).to(dtype));
}

export async function measureRoofline(): Promise<Roofline> {
  const gemm = async (dtype: DType) => {
    const size = 2048;
    const a = matrix(size, size, dtype);
    const b = matrix(size, size, dtype);
    const { median: plain } = await time(5, () => scope(() => void a.matmul(b)));
    const { median: own } = await time(5, () =>
      noGrad(() => scope(() => void autocastLinear(a, b, null, { dtype }))),
    );
    a.dispose();
    b.dispose();
    return (2 * size ** 3) / Math.min(plain, own);
  };
  const copy = async () => {
    const bytes = 256 * 2 ** 20;
    const from = randn([bytes / 4]);
    const to = randn([bytes / 4]);
    const { median: seconds } = await time(5, () => void to.copy_(from));
    from.dispose();
    to.dispose();
    return (2 * bytes) / seconds;
  };
  const read = async () => {
    const bytes = 256 * 2 ** 20;
    const from = randn([bytes / 4]);
    const { median: seconds } = await time(5, () => scope(() => void from.amax()));
    from.dispose();
    return bytes / seconds;
  };
  return {
    gemm: { float32: await gemm("float32"), bfloat16: await gemm("bfloat16") },
    copy: await copy(),
    read: await read(),
  };
}

/** Whether something else uses the processors; then figures are printed without a verdict. */
export function busy(): { load: number; isBusy: boolean } {
  const load = loadavg()[0]!;
  return { load, isBusy: load > 0.5 };
}

/** "1.23 s", "45.6 ms". */
export function seconds(value: number): string {
  return value >= 1 ? `${value.toFixed(2)} s` : `${(value * 1000).toFixed(1)} ms`;
}
