// Ends a training run at random moments, the given number of times, and resumes each time: its files must equal, byte
// for byte, those of an uninterrupted run, without additional files.
//
//   node --import tsx packages/astra-rl/fuzz/interruptions.ts --signal SIGKILL --times 100 --seed 1
//
// With --agent the target is an agent behind HTTP: in the end all its sessions must have ended, or be listed.
//
// Uses the program as it is installed (`npm run setup`). Checkpoints are written at every step.
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { SessionLedger } from "@astra-rl/agents";
import { Random } from "../../lm/fuzz/random.js";

const PROGRAM = fileURLToPath(new URL("../bin/astra-rl.js", import.meta.url));

const { values } = parseArgs({
  options: {
    signal: { type: "string", default: "SIGKILL" },
    times: { type: "string", default: "100" },
    seed: { type: "string", default: "1" },
    steps: { type: "string", default: "60" },
    agent: { type: "boolean", default: false },
  },
});
const [times, steps] = [Number(values.times), Number(values.steps)];
const signal = values.signal as NodeJS.Signals;
const random = new Random(Number(values.seed));
const folder = mkdtempSync(join(tmpdir(), "astra-rl-interruptions-"));

/** The sessions of the agent that have not ended, with what was said in each. */
const sessions = new Map<string, number>();

/** An agent over HTTP, whose answers are determined by its session. @returns its URL */
async function startAgent(): Promise<string> {
  let started = 0;
  const server = createServer((request, response) => {
    const [, , id = "", rest] = request.url!.split("/");
    const send = (status: number, value: unknown) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    };
    let body = "";
    request.on("data", (data: Buffer) => (body += String(data)));
    request.on("end", () => {
      if (request.method === "DELETE") send(sessions.delete(id) ? 200 : 404, {});
      else if (rest === undefined) {
        sessions.set(`s${++started}`, 0);
        send(201, { id: `s${started}` });
      } else if (!sessions.has(id)) send(404, {});
      else {
        const count = sessions.get(id)! + 1;
        sessions.set(id, count);
        send(200, {
          text: `answer ${count}`,
          calls: [{ name: "count", arguments: { odd: body.length % 2 } }],
        });
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  server.unref();
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const target = values.agent
  ? `{type: http-agent, baseURL: "${await startAgent()}", new: {path: /sessions, session: id}, ` +
    `send: {path: "/sessions/{session}/messages", body: {text: "{text}"}, text: text, calls: calls}, ` +
    `close: {path: "/sessions/{session}", method: DELETE}}`
  : "embedded:chatter";

writeFileSync(
  join(folder, "run.yaml"),
  `models: {tester: embedded:chatter, target: ${target}}
${values.agent ? "scorer: {type: tool-call, calls: [{tool: count, pattern: '1'}]}\nreward: {terms: [{type: harm, weight: 1}]}" : ""}
sampler: {width: 2, depth: ${values.agent ? 2 : 1}}
algorithm: {type: dpo, pairMargin: 0}
generation: {tester: {maxNewTokens: 4}, target: {maxNewTokens: 4}}
training:
  trainingSteps: ${steps}
  numEpisodesPerExperience: 2
  evaluateEvery: 7
  evaluationRollouts: 4
  checkpointEvery: 1
  learningRate: 1e-4
`,
);

interface Ended {
  code: number | null;
  signal: string | null;
  errors: string;
  milliseconds: number;
}

/** When a process is ended: so many milliseconds after it has done so many steps. */
interface Moment {
  steps: number;
  milliseconds: number;
}

/** Number of steps that a run has done. */
function stepsOf(run: string): number {
  const file = join(folder, run, "metrics.jsonl");
  return existsSync(file) ? readFileSync(file, "utf8").split("\n").length - 1 : 0;
}

/** Trains in a run folder; ends the process at a moment, null: never. */
function train(run: string, resume: boolean, moment: Moment | null): Promise<Ended> {
  return new Promise((resolve) => {
    const args = ["train", join(folder, "run.yaml"), "--run-dir", join(folder, run), "--quiet"];
    const began = performance.now();
    const child = spawn(process.execPath, [PROGRAM, ...args, ...(resume ? ["--resume"] : [])], {
      stdio: ["ignore", "ignore", "pipe"],
      // Sums depend on the number of threads, and that on the machine's load.
      env: { ...process.env, OMP_NUM_THREADS: "1" },
    });
    let errors = "";
    child.stderr.on("data", (data: Buffer) => (errors += String(data)));
    const before = stepsOf(run);
    let timer: NodeJS.Timeout | undefined;
    const watch = () => {
      if (moment === null) return;
      const isReached = stepsOf(run) >= before + moment.steps;
      timer = isReached ? setTimeout(() => child.kill(signal), moment.milliseconds) : setTimeout(watch, 10);
    };
    watch();
    child.on("close", (code, ended) => {
      clearTimeout(timer);
      resolve({ code, signal: ended, errors, milliseconds: performance.now() - began });
    });
  });
}

/** SHA-256 of every file, by its path; times a step took are not part of what must be equal. */
function contents(run: string): Map<string, string> {
  const root = join(folder, run);
  if (!existsSync(root)) return new Map();
  const found = new Map<string, string>();
  for (const name of readdirSync(root, { recursive: true, encoding: "utf8" })) {
    const path = join(root, name);
    if (statSync(path).isDirectory()) {
      found.set(`${relative(root, path)}/`, "folder");
      continue;
    }
    let bytes: Buffer | string = readFileSync(path);
    if (name === "metrics.jsonl") bytes = bytes.toString().replaceAll(/"time\/[^"]*":[^,}]*,?/gu, "");
    // Dates and one entry for each session: both runs have the file, and that is what is asked of it.
    if (name === "run.json") bytes = "";
    // The answers and sessions of a process that was killed before its checkpoint are there as well.
    if (name === "answers.jsonl" || name.endsWith("-sessions.jsonl")) bytes = "";
    // Length and digest of metrics.jsonl, which holds those times.
    if (name.endsWith("trainer.json")) bytes = bytes.toString().replace(/"metrics": \{[^}]*\}/u, "");
    found.set(relative(root, path), createHash("sha256").update(bytes).digest("hex"));
  }
  return found;
}

function differences(whole: ReadonlyMap<string, string>, parts: ReadonlyMap<string, string>): string[] {
  return [...new Set([...whole.keys(), ...parts.keys()])].flatMap((name) => {
    if (!whole.has(name)) return [`${name} was left over`];
    if (!parts.has(name)) return [`${name} is missing`];
    return whole.get(name) === parts.get(name) ? [] : [`${name} differs`];
  });
}

/** The sessions that a run's folder lists as left open: their ids, and how many had none yet. */
const listed = { ids: new Set<string>(), unnamed: 0 };

/** Adds what a run lists, before its folder is deleted. */
function addListed(run: string): void {
  const file = join(folder, run, "answers.target-sessions.jsonl");
  if (!existsSync(file)) return;
  for (const { session } of new SessionLedger("target", file).left) {
    if (session === null) listed.unnamed += 1;
    else listed.ids.add(session);
  }
}

const problems: string[] = [];
const uninterrupted = await train("whole", false, null);
if (uninterrupted.code !== 0) throw new Error(`the uninterrupted run failed: ${uninterrupted.errors}`);
const whole = contents("whole");

let [sent, runs, anew] = [0, 0, 0];
while (sent < times) {
  runs += 1;
  const run = `parts-${runs}`;
  const checkpoints = join(folder, run, "checkpoints");
  for (let done = false; !done;) {
    const resume = existsSync(join(checkpoints, "last")) || existsSync(join(checkpoints, ".last.old"));
    // A run that ended before its first checkpoint is started again.
    if (!resume) {
      addListed(run);
      rmSync(join(folder, run), { recursive: true, force: true });
    }
    anew += resume || sent === 0 ? 0 : 1;
    // While it starts, or within or after one of its next steps.
    const further = random.below(Math.ceil(steps / 2));
    const longest = uninterrupted.milliseconds / (further === 0 ? 2 : steps);
    const moment = { steps: further, milliseconds: random.below(Math.ceil(longest)) };
    const ended = await train(run, resume, sent < times ? moment : null);
    done = ended.code === 0;
    if (!done) sent += 1;
    const inOrder = ended.signal === signal || /stopped after step \d+ of/u.test(ended.errors);
    if (!done && !inOrder) problems.push(`${run}: ended with ${ended.code}: ${ended.errors.slice(-500)}`);
    if (!done && !inOrder) break;
  }
  problems.push(...differences(whole, contents(run)).map((what) => `${run}: ${what}`));
  addListed(run);
  rmSync(join(folder, run), { recursive: true, force: true });
}
const unlisted = [...sessions.keys()].filter((id) => !listed.ids.has(id));
if (unlisted.length > listed.unnamed) {
  problems.push(
    `${unlisted.length} sessions neither ended nor are listed, ${listed.unnamed} of them without an id`,
  );
}
if (values.agent) {
  process.stdout.write(
    `sessions: ${sessions.size} have not ended, ${listed.ids.size} are listed by id, ${listed.unnamed} without\n`,
  );
}
for (const problem of problems) process.stdout.write(`${problem}\n`);
process.stdout.write(
  `interruptions: ${sent} × ${signal} in ${runs} runs of ${steps} steps, ${anew} begun again before a first checkpoint, ` +
    `${problems.length} problems\n`,
);
rmSync(folder, { recursive: true, force: true });
process.exitCode = problems.length === 0 ? 0 : 1;
