import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { createServer, type Server } from "node:net";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import { distributed, engineInformation, ones } from "../../src/index.js";
import { addon } from "../../src/native.js";

const RANK = fileURLToPath(new URL("rank.mjs", import.meta.url));

interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  lines: Record<string, unknown>[];
  errors: string;
  /** On the system's clock, in milliseconds. */
  at: number;
}

const children: ChildProcess[] = [];
const servers: Server[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  for (const server of servers.splice(0)) server.close();
});

function listen(): Promise<{ server: Server; port: number }> {
  return new Promise((resolve) => {
    const server = createServer(() => undefined);
    server.listen(0, "127.0.0.1", () => {
      resolve({ server, port: (server.address() as { port: number }).port });
    });
  });
}

async function freePort(): Promise<number> {
  const { server, port } = await listen();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/**
 * Runs a scenario of rank.mjs on all ranks.
 *
 * @param mercy milliseconds after the exit of the first rank in which the others may exit by themselves
 */
async function run(
  scenario: string,
  worldSize: number,
  { mercy = 10_000, environment = {} }: { mercy?: number; environment?: Record<string, string> } = {},
): Promise<Ended[]> {
  const port = await freePort();
  const ranks = Array.from({ length: worldSize }, (_, rank) => {
    const args = [RANK, scenario, String(rank), String(worldSize), String(port)];
    const env = { ...process.env, ...environment };
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"], env });
    children.push(child);
    return child;
  });
  return Promise.all(
    ranks.map(
      (child) =>
        new Promise<Ended>((resolve) => {
          let [output, errors] = ["", ""];
          child.stdout.on("data", (chunk: Buffer) => (output += String(chunk)));
          child.stderr.on("data", (chunk: Buffer) => (errors += String(chunk)));
          child.once("close", (code, signal) => {
            setTimeout(() => {
              for (const other of ranks) other.kill("SIGKILL");
            }, mercy).unref();
            const lines = output
              .split("\n")
              .flatMap((line) => (line === "" ? [] : [JSON.parse(line) as Record<string, unknown>]));
            resolve({ code, signal, lines, errors, at: Date.now() });
          });
        }),
    ),
  );
}

describe("a group of processes", () => {
  it("sums, broadcasts and gathers, with the same bits on all ranks and each time", async () => {
    const [first, again] = [await run("collectives", 3), await run("collectives", 3)];
    for (const { code, errors, lines } of first) {
      expect({ code, errors }).toEqual({ code: 0, errors: "" });
      expect(lines).toHaveLength(4);
      // Sums and broadcasts are the same for all.
      expect(lines[0]).toEqual(first[0]!.lines[0]);
      expect(lines[1]).toEqual(first[0]!.lines[1]);
    }
    expect(again.map(({ lines }) => lines)).toEqual(first.map(({ lines }) => lines));
    const [sums, gathered] = first[0]!.lines as [
      { small: number[][][]; half: number[]; large: number[]; other: number; sent: unknown },
      unknown,
    ];
    for (const value of sums.small[0]!.flat()) expect(value).toBeCloseTo(2, 6);
    expect(sums.small[1]).toEqual([3, expect.closeTo(0.3, 15)]);
    expect(sums.half).toEqual([6]);
    // Parts of a row are added in different orders.
    for (const value of sums.large) expect(value).toBeCloseTo(1 / 3 + 1 / 4 + 1 / 5, 6);
    expect(sums.other).toBe(3 * 4_000_000);
    expect(sums.sent).toEqual([[1, 2], [[1]]]);
    expect(gathered).toEqual({
      ranks: [0, 1, 2],
      zero: [true, true, true],
      sum: [0.1 + 0.2, 0.1 + 0.2, 0.1 + 0.2],
      notNumbers: Array.from({ length: 3 }, () => "NaNInfinity"),
      texts: [[[0, ""]], [[1, "é"]], [[2, "éé"]]],
      first: "of 0",
    });
    expect(first.map(({ lines }) => lines[2])).toEqual(
      [0, 1, 2].map((rank) => ({ leaked: 0, rank, worldSize: 3 })),
    );
    expect(first[2]!.lines[3]).toEqual({ alone: [0, 1] });
  });

  it("does not block the event loop while it waits for another rank", async () => {
    const [waiting] = await run("turns", 2);
    expect(waiting!.lines[0]!["turns"]).toBeGreaterThan(20);
  });

  it("ends within seconds when a rank is killed while others compute", async () => {
    const ended = await run("death", 4);
    expect(ended[3]!.signal).toBe("SIGKILL");
    for (const { code, at } of ended.slice(0, 3)) {
      expect(code).toBe(1);
      expect(at - ended[3]!.at).toBeLessThan(5000);
    }
    expect(ended[0]!.lines.at(-1)).toEqual({ lost: 3 });
    // Rank 1 was computing and could not report; rank 0 reported for all.
    expect(ended.map(({ errors }) => errors)).toEqual(["", "", "", ""]);
    expect(ended[2]!.lines.at(-1)).toEqual({ lost: 3 });
  });

  it("ends when rank 0 is killed", async () => {
    const ended = await run("first", 3);
    expect(ended.slice(1).map(({ code, lines }) => [code, lines])).toEqual([
      [1, [{ lost: 0 }]],
      [1, [{ lost: 0 }]],
    ]);
  });

  for (const [victim, signal] of [
    [1, "SIGKILL"],
    [0, "SIGKILL"],
    [1, "SIGSTOP"],
  ] as const) {
    it(`ends within seconds when rank ${victim} gets ${signal} while waiting for another`, async () => {
      const environment = { RANK_VICTIM: String(victim), RANK_SIGNAL: signal };
      const ended = await run("waiting", 4, { mercy: 6000, environment });
      const others = [0, 1, 2].filter((rank) => rank !== victim).map((rank) => ended[rank]!);
      expect(others.map(({ code, lines }) => [code, lines])).toEqual([
        [1, [{ lost: victim }]],
        [1, [{ lost: victim }]],
      ]);
      const signalled = ended[victim]!.lines[0]!["signalled"] as number;
      for (const { at } of others) expect(at - signalled).toBeLessThan(5000);
    });
  }

  it("ends without a message after a rank has announced its failure", async () => {
    const ended = await run("failure", 4);
    expect(ended.map(({ code, errors }) => [code, errors])).toEqual([
      [1, ""],
      [3, ""],
      [1, ""],
      [1, ""],
    ]);
    expect(ended[0]!.lines).toEqual([{ lost: null }]);
    expect(ended[3]!.lines).toEqual([{ lost: null }]);
    for (const { at } of ended) expect(at - ended[1]!.at).toBeLessThan(5000);
  });

  it("fails after its timeout when a rank is stopped", async () => {
    const [waiting] = await run("stopped", 2, { mercy: 1000 });
    expect(waiting!.code).toBe(2);
    expect(waiting!.lines[0]!["error"]).toMatch(
      /^distributed: rank 0 of 2 waited for another rank that has ended, or that did not answer within 3 s/u,
    );
  });

  it("refuses values that cannot be sent, and continues", async () => {
    const ended = await run("refusals", 2);
    for (const { code, lines } of ended) {
      expect(code).toBe(0);
      expect(lines[0]!["failures"]).toEqual([
        "allReduce: tensors must be floating, got int64[1]",
        "broadcast: root must be a rank of the group, got 7",
        expect.stringMatching(/^distributed: a value cannot be sent between processes: .* use plain data$/u),
        "distributed: this process has already joined a group",
      ]);
    }
  });
});

const ip = (...args: string[]) => spawnSync("ip", args, { encoding: "utf8" }).status === 0;
const space = `astra${process.pid}`;
/** Two machines, as network namespaces of this one with a virtual cable between them; needs root and iproute2. */
const hasCable =
  ip("netns", "add", `${space}-0`) &&
  ip("netns", "add", `${space}-1`) &&
  ip("link", "add", `${space}0`, "type", "veth", "peer", "name", `${space}1`) &&
  [0, 1].every(
    (end) =>
      ip("link", "set", `${space}${end}`, "netns", `${space}-${end}`) &&
      ip("-n", `${space}-${end}`, "addr", "add", `10.213.0.${end + 1}/24`, "dev", `${space}${end}`) &&
      ip("-n", `${space}-${end}`, "link", "set", `${space}${end}`, "up") &&
      ip("-n", `${space}-${end}`, "link", "set", "lo", "up"),
  );
if (!hasCable) process.stderr.write("distributed.test.ts: no network is cut: that needs root and iproute2\n");
afterAll(() => {
  for (const end of [0, 1]) ip("netns", "del", `${space}-${end}`);
});

describe.skipIf(!hasCable)("two machines", () => {
  it("both end within seconds when the connection between them is cut", async () => {
    let cut = 0;
    const ranks = [0, 1].map((rank) => {
      const args = ["netns", "exec", `${space}-${rank}`, process.execPath, RANK];
      const child = spawn("ip", [...args, "silence", String(rank), "2", "29400"], {
        stdio: ["ignore", "pipe", "pipe"],
        env: { ...process.env, RANK_MASTER: "10.213.0.1" },
      });
      children.push(child);
      let [output, errors] = ["", ""];
      const joined = new Promise<void>((resolve) => {
        child.stdout.on("data", (chunk: Buffer) => {
          output += String(chunk);
          resolve();
        });
      });
      child.stderr.on("data", (chunk: Buffer) => (errors += String(chunk)));
      const ended = new Promise<{ code: number | null; output: string; errors: string; after: number }>(
        (resolve) => {
          child.once("close", (code) => resolve({ code, output, errors, after: performance.now() - cut }));
        },
      );
      return { joined, ended };
    });
    await Promise.all(ranks.map(({ joined }) => joined));
    cut = performance.now();
    expect(ip("-n", `${space}-1`, "link", "set", `${space}1`, "down")).toBe(true);
    const ended = await Promise.all(ranks.map((rank) => rank.ended));
    for (const [rank, { code, output, errors, after }] of ended.entries()) {
      expect([code, errors]).toEqual([1, ""]);
      expect(output).toBe(`{"joined":${rank}}\n{"lost":${1 - rank}}\n`);
      expect(after).toBeLessThan(8000);
    }
  });
});

describe("joining", () => {
  const alone = { rank: 1, worldSize: 2, masterAddress: "127.0.0.1", timeout: 5 };

  /** In a separate process, since a process can join only once. */
  async function failure(options: object): Promise<{ message: string; seconds: number; errors: string }> {
    const text = `
      import { distributed } from ${JSON.stringify(new URL("../../dist/index.js", import.meta.url).href)};
      const start = performance.now();
      await distributed.initProcessGroup(${JSON.stringify(options)}).catch(({ message }) => {
        console.log(JSON.stringify({ message, seconds: (performance.now() - start) / 1000 }));
        process.exit(0);
      });`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", text], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    children.push(child);
    let [output, errors] = ["", ""];
    child.stdout.on("data", (chunk: Buffer) => (output += String(chunk)));
    child.stderr.on("data", (chunk: Buffer) => (errors += String(chunk)));
    await new Promise((resolve) => child.once("close", resolve));
    return { ...(JSON.parse(output) as { message: string; seconds: number }), errors };
  }

  it.each([
    ["a port that is silent", "silent", 1],
    ["no listener", "nobody", 1],
    ["a rank that is missing", "nobody", 0],
  ])("fails by its deadline at %s", async (_, kind, rank) => {
    const { server, port } = await listen();
    if (kind === "silent") servers.push(server);
    else await new Promise((resolve) => server.close(resolve));
    const failed = await failure({ ...alone, rank, masterPort: port, connectTimeout: 3 });
    expect(failed.message).toMatch(
      new RegExp(`^distributed: rank ${rank} of 2 .*127\\.0\\.0\\.1:${port}`, "u"),
    );
    expect(failed.message).toMatch(/check that all ranks were started, that they share address, port/u);
    expect(failed.seconds).toBeLessThan(8);
    expect(failed.errors).toBe("");
  });

  it("explains how to use torchrun's store with an old libtorch", async () => {
    const options = { ...alone, masterPort: 29_500, servesRendezvous: false, connectTimeout: 2 };
    const { message } = await failure(options);
    expect(message).toMatch(
      engineInformation().libtorch.startsWith("1.")
        ? /TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1/u
        : /cannot join|has not joined/u,
    );
  });

  it("names a machine that does not exist, and a port that is in use", async () => {
    const nowhere = await failure({ ...alone, masterAddress: "no-such-host.invalid", masterPort: 29_500 });
    expect(nowhere.message).toBe(
      "distributed: rank 1 of 2 cannot find the machine no-such-host.invalid; check the address of rank 0 (MASTER_ADDR)",
    );
    const { server, port } = await listen();
    servers.push(server);
    const taken = await failure({ ...alone, rank: 0, masterPort: port, connectTimeout: 3 });
    expect(taken.message).toMatch(/failed to (?:listen|bind)/u);
    expect(taken.errors).toBe("");
  });
});

describe("a process alone", () => {
  it("is rank 0 of 1, and its collectives return at once", async () => {
    const value = ones([2]);
    await distributed.allReduce_([value]);
    await distributed.broadcast_([value], 0);
    expect(value.toArray()).toEqual([1, 1]);
    value.dispose();
    const object = {};
    const [same] = await distributed.allGatherObject(object);
    expect(same).toBe(object);
    expect([distributed.rank(), distributed.worldSize()]).toEqual([0, 1]);
    await distributed.destroyProcessGroup();
  });

  it("refuses the addon's collectives, and ranks outside a group", () => {
    const nothing = () => undefined;
    const join = (...changes: [index: number, value: unknown][]) => {
      const args: unknown[] = ["127.0.0.1", 29_500, false, "", "127.0.0.1", 0, 2, 10, 10, nothing, nothing];
      for (const [index, value] of changes) args[index] = value;
      return () => (addon().joinGroup as (...all: unknown[]) => void)(...args);
    };
    expect(join([1, 0])).toThrow("joinGroup: port must be between 1 and 65535, got 0");
    expect(join([5, 2])).toThrow("joinGroup: rank must be between 0 and 1, got 2");
    expect(join([6, 0])).toThrow("joinGroup: size must be between 1 and 65536, got 0");
    expect(join([8, -1])).toThrow(/^joinGroup: timeout must be between 1/u);
    expect(join([9, 1])).toThrow("joinGroup: lost must be a function");
    expect(join([10, {}])).toThrow("joinGroup: callback must be a function");
    const tensor = ones([1]);
    expect(() => addon().allReduce([tensor.handle], nothing)).toThrow(
      "allReduce: this process has joined no group",
    );
    expect(() => addon().broadcast([tensor.handle], 0, nothing)).toThrow(
      "broadcast: this process has joined no group",
    );
    expect(() => addon().allGather(new Uint8Array(1), nothing)).toThrow(
      "allGather: this process has joined no group",
    );
    addon().leaveGroup();
    tensor.dispose();
  });

  it.each([0, -1, NaN, 1e9])("refuses a timeout of %d seconds", async (timeout) => {
    const options = { rank: 0, worldSize: 2, masterAddress: "127.0.0.1", masterPort: 1 };
    await expect(distributed.initProcessGroup({ ...options, timeout })).rejects.toThrow(
      breaking("out-of-range", "distributed: timeout"),
    );
  });
});
