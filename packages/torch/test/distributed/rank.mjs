/**
 * One rank of a group, for distributed.test.ts: `rank.mjs SCENARIO RANK WORLD_SIZE PORT`. Writes its results as lines of
 * JSON. It runs the package as it is built, since compiling it anew in each process takes longer than most scenarios.
 */
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { distributed, liveTensors, ones, scope, tensor } from "@astra-rl/torch";

const [scenario = "", ...numbers] = process.argv.slice(2);
const [rank, worldSize, masterPort] = numbers.map(Number);
const say = (value) => void process.stdout.write(`${JSON.stringify(value)}\n`);

async function join(timeout = 20) {
  const onLost = (lost) => {
    say({ lost });
    process.exit(1);
  };
  const address = { masterAddress: process.env["RANK_MASTER"] ?? "127.0.0.1", masterPort };
  await distributed.initProcessGroup({
    ...address,
    rank,
    worldSize,
    timeout,
    connectTimeout: 30,
    onLost,
  });
}

/** Number of connections to a port of this machine. */
function connections(port) {
  const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const lines = ["tcp", "tcp6"].flatMap((name) => readFileSync(`/proc/self/net/${name}`, "utf8").split("\n"));
  // sl, local address, remote address, state: 01 is established.
  const fields = lines.map((line) => line.trim().split(/\s+/u));
  return fields.filter(([, address, , state]) => (address ?? "").endsWith(local) && state === "01").length;
}

/** Blocks the event loop. */
function compute(milliseconds) {
  const end = performance.now() + milliseconds;
  while (performance.now() < end);
}

const SCENARIOS = {
  async collectives() {
    await join();
    const before = liveTensors();
    await scope(async () => {
      // Thirds have no exact sum in float32: the order of addition affects the last bits.
      const small = [ones([2, 3]).mul((rank + 1) / 3), tensor([rank, 0.1 * rank], { dtype: "float64" })];
      const half = tensor([1 + rank], { dtype: "bfloat16" });
      await distributed.allReduce_(small);
      await distributed.allReduce_([half]);
      const large = ones([3_000_000]).mul(1 / (rank + 3));
      const others = [ones([4_000_000]).mul(rank), large];
      await distributed.allReduce_(others);
      const sent = [tensor([rank, 2 * rank]), tensor([[rank]])];
      await distributed.broadcast_(sent, 1);
      say({
        small: small.map((each) => each.toArray()),
        half: half.toArray(),
        large: [...new Set(large.toTypedArray())],
        other: others[0].sum().item(),
        sent: sent.map((each) => each.toArray()),
      });
    });
    const value = { rank, bits: [-0, NaN, Infinity, 0.1 + 0.2], map: new Map([[rank, "é".repeat(rank)]]) };
    const all = await distributed.allGatherObject(value);
    say({
      ranks: all.map((each) => each.rank),
      zero: all.map(({ bits }) => Object.is(bits[0], -0)),
      sum: all.map(({ bits }) => bits[3]),
      notNumbers: all.map(({ bits }) => String(bits[1]) + String(bits[2])),
      texts: all.map(({ map }) => [...map]),
      first: await distributed.fromRankZero(`of ${rank}`),
    });
    await distributed.barrier();
    say({ leaked: liveTensors() - before, rank: distributed.rank(), worldSize: distributed.worldSize() });
    await distributed.destroyProcessGroup();
    say({ alone: [distributed.rank(), distributed.worldSize()] });
  },

  async turns() {
    await join();
    let turns = 0;
    const timer = setInterval(() => (turns += 1), 5);
    if (rank === 1) await sleep(1000);
    await distributed.barrier();
    clearInterval(timer);
    say({ turns });
    await distributed.destroyProcessGroup();
  },

  /** The last rank dies while rank 1 computes and rank 0 waits. */
  async death() {
    await join();
    say({ joined: process.pid });
    if (rank === worldSize - 1) {
      await sleep(300);
      process.kill(process.pid, "SIGKILL");
    }
    if (rank === 1) compute(20_000);
    await distributed.barrier();
    await sleep(20_000);
  },

  /** Does not exit, and does not respond. */
  async silence() {
    await join();
    say({ joined: rank });
    await sleep(30_000);
  },

  /** Rank 0 dies. */
  async first() {
    await join();
    if (rank === 0) process.kill(process.pid, "SIGKILL");
    await sleep(20_000);
  },

  /** The last rank does not connect; of the others, one exits (RANK_VICTIM) once all of them wait. */
  async waiting() {
    if (rank === worldSize - 1) await sleep(60_000);
    if (rank === Number(process.env["RANK_VICTIM"])) {
      const timer = setInterval(() => {
        // Each has two connections to the rendezvous.
        if (connections(masterPort) < 2 * (worldSize - 1)) return;
        clearInterval(timer);
        setTimeout(() => {
          say({ signalled: Date.now() });
          process.kill(process.pid, process.env["RANK_SIGNAL"]);
        }, 1000);
      }, 50);
    }
    await join();
  },

  /** Rank 1 fails and announces it, while the others compute or wait. */
  async failure() {
    await join();
    await sleep(200);
    if (rank === 1) {
      distributed.announceFailure();
      say({ failed: true });
      process.exit(3);
    }
    if (rank === 2) compute(10_000);
    await distributed.barrier();
  },

  async stopped() {
    await join(3);
    if (rank === 1) process.kill(process.pid, "SIGSTOP");
    await distributed.barrier();
  },

  async refusals() {
    await join();
    const failures = [];
    const attempts = [
      () => distributed.allReduce_([tensor([1], { dtype: "int64" })]),
      () => distributed.broadcast_([tensor([1])], 7),
      () => distributed.allGatherObject(() => 1),
      () => join(),
    ];
    for (const attempt of attempts) {
      await scope(async () => {
        await attempt().catch((error) => failures.push(error.message));
      });
    }
    say({ failures });
    await distributed.destroyProcessGroup();
  },
};

try {
  await SCENARIOS[scenario]();
} catch (error) {
  say({ error: error.message });
  process.exit(2);
}
