import { hostname } from "node:os";
import { availableMemory, distributed, engineInformation, ones, scope } from "@astra-rl/torch";
import { table } from "@astra-rl/report";
import type { Output } from "@astra-rl/assembly/program";

const NUMBERS = 25_000_000;
const TIMES = 5;
const BARRIERS = 20;

/** Measures the connection between the ranks; all ranks must call this. */
export async function measureConnection() {
  const { libtorch, isa, threads } = engineInformation();
  const ranks = await distributed.allGatherObject({
    host: hostname(),
    libtorch,
    isa,
    threads,
    /** Bytes; null if unknown. */
    memory: availableMemory()?.available ?? null,
  });
  const latency = await medianOf(BARRIERS, () => distributed.barrier());
  const milliseconds = await scope(async () => {
    const numbers = [ones([NUMBERS])];
    return medianOf(TIMES, async () => {
      await distributed.allReduce_(numbers);
    });
  });
  return {
    ranks,
    /** Milliseconds of an exchange among all ranks. */
    latency,
    /** Bytes of gradients that are summed over all ranks in a second. */
    bytesPerSecond: (4 * NUMBERS) / (milliseconds / 1000),
  };
}

/** Median in milliseconds; the first, which opens connections and allocates memory, is not counted. */
async function medianOf(times: number, work: () => Promise<void>): Promise<number> {
  const all: number[] = [];
  for (let i = 0; i <= times; i++) {
    await distributed.barrier();
    const start = performance.now();
    await work();
    if (i > 0) all.push(performance.now() - start);
  }
  return all.sort((a, b) => a - b)[Math.floor(all.length / 2)]!;
}

export function showConnection(
  { ranks, latency, bytesPerSecond }: Awaited<ReturnType<typeof measureConnection>>,
  output: Output,
): void {
  const gibibytes = (bytes: number | null) =>
    bytes === null ? "unknown" : `${(bytes / 2 ** 30).toFixed(1)} GiB`;
  const rows = ranks.map((rank, index) => [
    String(index),
    rank.host,
    rank.libtorch,
    rank.isa,
    String(rank.threads),
    gibibytes(rank.memory),
  ]);
  for (const line of table(["rank", "machine", "libtorch", "ISA", "threads", "free memory"], rows)) {
    output.result(line);
  }
  output.result(`latency    ${latency.toFixed(2)} ms for an exchange among all ranks`);
  output.result(`bandwidth  ${(bytesPerSecond / 1e6).toFixed(0)} MB of gradients summed per second`);
  for (const [name, parameters] of [
    ["124M", 124e6],
    ["1B", 1e9],
    ["8B", 8e9],
  ] as const) {
    const seconds = (4 * parameters) / bytesPerSecond;
    output.result(`           all weights of a ${name} model: ${seconds.toPrecision(2)} s in each update`);
  }
}
