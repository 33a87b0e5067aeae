import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import { parseEvaluationRecord } from "@astra-rl/records";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const BIN = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));
const { path } = temporaryFolder();

const yaml = (target: string, more = "") => `
models: { tester: "embedded:chatter", target: ${target} }
scorer: { type: tool-call, calls: [{ tool: refund }] }
reward: { terms: [{ type: harm, of: response, weight: 1 }] }
sampler: { width: 2, depth: 1 }
generation: { tester: { maxNewTokens: 4 } }
training: { trainingSteps: 1, evaluateEvery: 0, numEpisodesPerExperience: 2 }
evaluation: { rollouts: 8 }
${more}`;

/** A command in a process of its own. */
function started(...args: string[]) {
  const child = spawn(process.execPath, [BIN, ...args], { cwd: path(), stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (part: Buffer) => (text += part.toString()));
  const ended = once(child, "close").then(([code]) => ({ code: code as number, text }));
  return { child, ended };
}

/** An agent over loopback that answers the first message of each session only after `late` milliseconds. */
async function shop(late: number) {
  const state = { begun: 0, asked: 0, ended: 0 };
  const server = createServer((request, response) => {
    const send = (body: object) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    request.resume();
    if (request.method === "DELETE") {
      state.ended++;
      send({});
    } else if (request.url === "/sessions") send({ id: `s${++state.begun}` });
    else {
      state.asked++;
      setTimeout(send, late, { text: "Noted.", calls: [] });
    }
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const target = `{ type: http-agent, baseURL: "http://127.0.0.1:${(server.address() as AddressInfo).port}",
    new: { path: /sessions, session: id }, close: { method: DELETE, path: "/sessions/{session}" },
    send: { path: "/sessions/{session}", body: { text: "{text}" }, text: text, calls: calls } }`;
  return { state, target };
}

describe("Ctrl-C", () => {
  test.each(["eval", "search"])(
    "%s ends the sessions that wait for an answer, and says what is left",
    async (command) => {
      const { state, target } = await shop(600_000);
      writeFileSync(path("run.yaml"), yaml(target));
      const { child, ended } = started(command, "run.yaml", "--output", "out.json");
      while (state.asked === 0 && child.exitCode === null)
        await new Promise((resolve) => setTimeout(resolve, 50));
      child.kill("SIGINT");
      const { code, text } = await ended;
      expect(text).toContain(`${command}: stopped after 0`);
      expect(code).toBe(1);
      expect(text).not.toMatch(/^ {4}at /mu);
      expect(state.begun).toBeGreaterThan(0);
      expect(state.ended).toBe(state.begun);
      expect(existsSync(path("out.json"))).toBe(false);
    },
  );
});

describe("an error of an agent's code after its answer", () => {
  test.each([
    ["a promise that nobody waits for", "void Promise.reject(new Error('too late'))"],
    ["a timer", "setTimeout(() => { throw new Error('too late'); }, 1)"],
    ["a timer that fires while the process ends", "setTimeout(() => { throw new Error('too late'); }, 300)"],
  ])("%s is a message and a code, and nothing is lost", async (_, late) => {
    writeFileSync(path("agent.mjs"), `export const agent = () => { ${late}; return "Noted."; };`);
    writeFileSync(path("run.yaml"), yaml("{ type: ./agent.mjs#agent }"));
    const accept = ["--accept", "target-silent"];
    const { code, text } = await started("eval", "run.yaml", "--output", "out.json", ...accept).ended;
    expect(text).toMatch(/an error that nothing waited for, .*: too late \(.*agent\.mjs:1:\d+\)/u);
    expect(text.match(/too late/gu)).toHaveLength(3);
    expect(text).not.toMatch(/^ {4}at /mu);
    expect(code).toBe(1);
    const { summary } = parseEvaluationRecord(readFileSync(path("out.json"), "utf8"), "out.json");
    expect([summary.n_rollouts, summary.n_errors]).toEqual([8, 0]);
  });
});

test("a scorer of calls in a reward's term is refused where the target makes none", async () => {
  writeFileSync(
    path("run.yaml"),
    `
models: { tester: "embedded:chatter", target: "embedded:chatter" }
scorer: { type: keyword, entries: [{ term: fool }] }
reward: { terms: [{ type: score, scorer: { type: tool-call, calls: [{ tool: refund }] }, weight: 1 }] }
`,
  );
  for (const args of [["eval"], ["train", "--run-dir", path("run")]]) {
    const { code, err } = await runCommand(args[0]!, path("run.yaml"), ...args.slice(1));
    expect(err).toContain("reward.terms: a scorer, tool-call judges what agents do");
    expect(code).toBe(2);
  }
});

const REFUNDING = `export const agent = (text) => ({ text: "Done.", calls: [{ name: "refund", arguments: { text } }] });`;

test("two processes measure what one does, count the sessions of both, and leave no answers", async () => {
  writeFileSync(path("agent.mjs"), REFUNDING);
  writeFileSync(path("run.yaml"), yaml("{ type: ./agent.mjs#agent }"));
  const one = await started("eval", "run.yaml", "--output", "one.json").ended;
  const two = await started("eval", "run.yaml", "--output", "two.json", "--processes", "2").ended;
  expect([one.code, two.code]).toEqual([0, 0]);
  expect(readFileSync(path("two.json"), "utf8")).toBe(readFileSync(path("one.json"), "utf8"));
  // Eight rollouts and two plain questions.
  for (const { text } of [one, two]) expect(text).toContain("target: 10 sessions, 0 of them forks");
  expect(readdirSync(path()).filter((name) => name.includes(".json.answers"))).toEqual([]);
});

test("an agent cannot be hardened, by name", async () => {
  writeFileSync(path("agent.mjs"), REFUNDING);
  writeFileSync(path("run.yaml"), yaml("{ type: ./agent.mjs#agent }"));
  await started("train", "run.yaml", "--run-dir", "run", "--quiet").ended;
  const { err, code } = await runCommand("harden", path("run"), "--output", path("hardened"));
  expect(err).toContain("models.target must be a checkpoint, since an agent");
  expect(code).toBe(2);
});

test("a local agent may be an embedded model", async () => {
  const world = fileURLToPath(new URL("../../../assembly/world/shop-data/", import.meta.url));
  for (const name of ["tools.json", "customers-test.json"]) copyFileSync(`${world}${name}`, path(name));
  writeFileSync(
    path("run.yaml"),
    `
models: { tester: "embedded:shop", target: { type: local-agent, model: "embedded:shop", tools: tools.json } }
prompts: { test: customers-test.json }
scorer: { type: tool-call, calls: [{ tool: find_order }] }
reward: { terms: [{ type: harm, of: response, weight: 1 }] }
sampler: { depth: 1 }
evaluation: { rollouts: 2 }
`,
  );
  const { code, json } = await runCommand("eval", path("run.yaml"), "--json", "--quiet");
  expect(code).toBe(0);
  const [{ summary }] = json<{ summary: { n_errors: number; n_calls: number } }>() as [never];
  expect(summary).toMatchObject({ n_errors: 0, n_calls: 2 });
});
