import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  ConsoleLogger,
  JSONLinesLogger,
  MetricsLoggers,
  type LoggedValues,
  type MetricsLogger,
} from "@astra-rl/method";
import { parseMetricsLines } from "@astra-rl/records";
import { breaking } from "../../base/test/support/breaking.js";
import { MLflowLogger, TensorBoardLogger, WandbLogger, type WandbSdk } from "../src/loggers/index.js";
import { assemble, QUICK, textOf } from "../../method/test/training/support.js";
import { temporaryFolder } from "../../method/test/training/temporary-folder.js";

/** Records its arguments; fails at some calls. */
class Recorder implements MetricsLogger {
  readonly name = "recorder";
  readonly calls: string[] = [];
  constructor(readonly fails: (call: string) => boolean = () => false) {}
  #call(call: string): void {
    this.calls.push(call);
    if (this.fails(call)) throw new Error("gone");
  }
  open(): void {
    this.#call("open");
  }
  log(step: number): void {
    this.#call(`log ${step}`);
  }
  close(outcome: string): void {
    this.#call(`close ${outcome}`);
  }
}

const RUN = { folder: null, nextStep: 1, configuration: {} };

describe("the loggers of a run", () => {
  it("receive every step in order, and are closed with the outcome", async () => {
    const recorder = new Recorder();
    const { system, trainer } = assemble({ ...QUICK, trainingSteps: 3 }, { loggers: [recorder] });
    await trainer.train();
    expect(recorder.calls).toEqual(["open", "log 1", "log 2", "log 3", "close finished"]);
    trainer.dispose();
    system.dispose();
    const failed = new Recorder();
    const callbacks = [{ name: "x", onStep: () => Promise.reject(new Error("stop")) }];
    const other = assemble(QUICK, { loggers: [failed], callbacks });
    await expect(other.trainer.train()).rejects.toThrow("stop");
    expect(failed.calls).toEqual(["open", "close failed"]);
    other.trainer.dispose();
    other.system.dispose();
  });

  it("never end training: a failing one is reported once, and retried less and less often", async () => {
    const warnings: string[] = [];
    const broken = new Recorder((call) => call.startsWith("log"));
    const sound = new Recorder();
    const { system, trainer } = assemble(
      { ...QUICK, trainingSteps: 12, evaluateEvery: 0 },
      {
        loggers: [broken, sound],
        logger: { info: () => {}, warn: (line) => warnings.push(line) },
      },
    );
    await trainer.train();
    expect(trainer.step).toBe(12);
    // After a failure 1, 2, 4, … steps are skipped.
    expect(broken.calls).toEqual(["open", "log 1", "log 3", "log 6", "log 11", "close finished"]);
    expect(sound.calls).toHaveLength(14);
    expect(warnings.filter((line) => line.includes("logger recorder"))).toEqual([
      expect.stringMatching(/step 1 could not be logged: gone; training continues.*shown once/u),
    ]);
    trainer.dispose();
    system.dispose();
  });

  it("are opened later if opening failed, and called at each step once they work", async () => {
    let times = 0;
    const late = new Recorder((call) => call === "open" && ++times < 3);
    const loggers = new MetricsLoggers([late], { warn: () => {} });
    await loggers.open(RUN);
    for (let step = 1; step <= 6; step++) await loggers.log(step, {});
    await loggers.close("finished");
    expect(late.calls).toEqual(["open", "open", "open", "log 5", "log 6", "close finished"]);
  });

  it("time out", async () => {
    const warnings: string[] = [];
    const hanging: MetricsLogger = {
      name: "hanging",
      open: () => {},
      log: () => new Promise(() => {}),
      close: () => new Promise(() => {}),
    };
    const loggers = new MetricsLoggers([hanging], { warn: (line) => warnings.push(line), patience: 20 });
    await loggers.open(RUN);
    await loggers.log(1, {});
    await loggers.close("finished");
    expect(warnings[0]).toMatch(/no answer within 0.02 s/u);
    expect(warnings[1]).toMatch(/could not be closed/u);
  });

  it("refuse wrong usage before training begins", async () => {
    const wrong = new TensorBoardLogger();
    const { system, trainer } = assemble(QUICK, { loggers: [wrong] });
    await expect(trainer.train()).rejects.toThrow(breaking("folder-required", "TensorBoardLogger"));
    expect(trainer.step).toBe(0);
    trainer.dispose();
    system.dispose();
  });
});

describe("ConsoleLogger", () => {
  it("prints the requested values", () => {
    const lines: string[] = [];
    const logger = new ConsoleLogger({
      every: 2,
      keys: ["loss", "x", "b"],
      write: (line) => lines.push(line),
    });
    const values: LoggedValues = { loss: 0.123456, x: null, b: true };
    for (let step = 1; step <= 4; step++) logger.log(step, values);
    expect(lines).toEqual(["step 2  loss 0.1235  x -  b true", "step 4  loss 0.1235  x -  b true"]);
  });
});

describe("JSONLinesLogger", () => {
  it("contains the lines of metrics.jsonl, each step once, after any number of resumes", async () => {
    const folder = temporaryFolder();
    const file = join(folder, "copy", "steps.jsonl");
    const runDirectory = join(folder, "run");
    for (const [trainingSteps, resume] of [
      [3, false],
      [6, true],
    ] as const) {
      const { system, trainer } = assemble(
        { ...QUICK, trainingSteps, checkpointEvery: 2 },
        { runDirectory, resume, loggers: [new JSONLinesLogger(file)] },
      );
      await trainer.train();
      trainer.dispose();
      system.dispose();
      // As left by a process that was killed while writing a line of a step after its last checkpoint.
      if (!resume) writeFileSync(file, `${readFileSync(file, "utf8")}{"step":4,"loss":9}\n{"step`);
    }
    const lines = textOf(file).trimEnd().split("\n");
    const values = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(values).toEqual(parseMetricsLines(textOf(runDirectory, "metrics.jsonl")));
  });
});

describe("MLflowLogger", () => {
  /** A tracking server that records requests of its REST API. */
  interface Stored {
    experiment: string;
    name: unknown;
    params: Map<string, string>;
    metrics: { key: string; value: number; step: number }[];
    status: string;
  }
  let server: Server;
  let address: string;
  let experiments: string[];
  let runs: Stored[];
  let requests: { path: string; authorization: string | undefined }[];
  let isDown: boolean;
  beforeEach(async () => {
    [experiments, runs, requests, isDown] = [[], [], [], false];
    server = createServer((request, response) => {
      const url = new URL(request.url!, "http://localhost");
      const path = url.pathname.replace("/api/2.0/mlflow/", "");
      requests.push({ path, authorization: request.headers.authorization });
      let text = "";
      request.on("data", (chunk) => (text += String(chunk)));
      request.on("end", () => {
        const body = JSON.parse(text || "{}") as Record<string, unknown>;
        const answer = (status: number, value: unknown) =>
          response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
        if (isDown) return answer(503, { error_code: "TEMPORARILY_UNAVAILABLE" });
        if (path === "experiments/get-by-name") {
          const at = experiments.indexOf(url.searchParams.get("experiment_name")!);
          if (at < 0) return answer(404, { error_code: "RESOURCE_DOES_NOT_EXIST" });
          return answer(200, { experiment: { experiment_id: String(at) } });
        }
        if (path === "experiments/create") {
          experiments.push(body["name"] as string);
          return answer(200, { experiment_id: String(experiments.length - 1) });
        }
        if (path === "runs/create") {
          const experiment = experiments[Number(body["experiment_id"])]!;
          runs.push({
            experiment,
            name: body["run_name"],
            params: new Map(),
            metrics: [],
            status: "RUNNING",
          });
          return answer(200, { run: { info: { run_id: `run-${runs.length - 1}` } } });
        }
        const id = (body["run_id"] as string | undefined) ?? url.searchParams.get("run_id")!;
        const run = runs[Number(id.slice(4))]!;
        if (path === "runs/get") {
          const latest = new Map(run.metrics.map((metric) => [metric.key, metric]));
          return answer(200, { run: { data: { metrics: [...latest.values()] } } });
        }
        if (path === "runs/update") run.status = body["status"] as string;
        if (path === "runs/log-batch") {
          const { params = [], metrics = [] } = body as {
            params?: { key: string; value: string }[];
            metrics?: Stored["metrics"];
          };
          if (params.length > 100 || metrics.length > 1000) return answer(400, { error_code: "TOO_MUCH" });
          for (const { key, value } of params) run.params.set(key, value);
          run.metrics.push(...metrics);
        }
        return answer(200, {});
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterEach(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const logger = (environment: NodeJS.ProcessEnv = {}) =>
    new MLflowLogger({ trackingUri: `${address}/`, experiment: "redteam", environment });

  async function train(runDirectory: string, trainingSteps: number, resume: boolean, stopAt = Infinity) {
    const { system, trainer } = assemble(
      { ...QUICK, trainingSteps, checkpointEvery: 2, evaluateEvery: 0 },
      {
        runDirectory,
        resume,
        loggers: [logger()],
        callbacks: [
          {
            name: "killer",
            // Fails before its step is kept: those since the last checkpoint are computed again.
            onStep: ({ step }) => {
              if (step === stopAt) throw new Error("killed");
            },
          },
        ],
      },
    );
    await trainer.train().catch((error: unknown) => expect(String(error)).toContain("killed"));
    trainer.dispose();
    system.dispose();
  }

  it("sends the configuration, and each step once, across stops and resumes", async () => {
    const folder = join(temporaryFolder(), "my-run");
    await train(folder, 9, false, 6);
    expect(runs[0]!.status).toBe("FAILED");
    await train(folder, 9, true);
    expect(experiments).toEqual(["redteam"]);
    expect(runs).toHaveLength(1);
    const [run] = runs;
    expect(run).toMatchObject({ experiment: "redteam", name: "my-run", status: "FINISHED" });
    expect(run!.params.get("batchSize")).toBe("8");
    const records = parseMetricsLines(textOf(folder, "metrics.jsonl"));
    const expected = records.flatMap((record) =>
      Object.entries(record).flatMap(([key, value]) =>
        !["step", "version"].includes(key) && typeof value === "number"
          ? [{ key, value, step: record.step }]
          : [],
      ),
    );
    // Step 5 was logged before the process died, step 6 after; both were computed twice.
    expect(run!.metrics.map(({ key, value, step }) => ({ key, value, step }))).toEqual(expected);
  });

  it("starts another run for another folder, in the existing experiment", async () => {
    const folder = temporaryFolder();
    await train(join(folder, "a"), 1, false);
    await train(join(folder, "b"), 1, false);
    expect(experiments).toEqual(["redteam"]);
    expect(runs.map(({ name }) => name)).toEqual(["a", "b"]);
  });

  it("authenticates by the environment, and does not reveal the key", async () => {
    await logger({ MLFLOW_TRACKING_TOKEN: "secret" }).open(RUN);
    expect(new Set(requests.map(({ authorization }) => authorization))).toEqual(new Set(["Bearer secret"]));
    requests.length = 0;
    await logger({ MLFLOW_TRACKING_USERNAME: "u", MLFLOW_TRACKING_PASSWORD: "p" }).open(RUN);
    expect(requests[0]!.authorization).toBe(`Basic ${Buffer.from("u:p").toString("base64")}`);
  });

  it("lets training continue while the server is down", async () => {
    isDown = true;
    const folder = temporaryFolder();
    await train(folder, 2, false);
    expect(parseMetricsLines(textOf(folder, "metrics.jsonl"))).toHaveLength(2);
    expect(runs).toEqual([]);
    expect(existsSync(join(folder, "mlflow.json"))).toBe(false);
  });

  it("truncates long values, sends many in parts, and requires an address", async () => {
    const many = Object.fromEntries(Array.from({ length: 250 }, (_, index) => [`key${index}`, index]));
    await logger().open({
      ...RUN,
      configuration: { ...many, long: "x".repeat(900), nested: { list: [1, "a"] } },
    });
    expect(runs[0]!.params.size).toBe(252);
    expect(runs[0]!.params.get("long")).toHaveLength(500);
    expect(runs[0]!.params.get("nested.list")).toBe('[1,"a"]');
    expect(() => new MLflowLogger({ environment: {} })).toThrow(
      breaking("not-an-http-address", "MLFLOW_TRACKING_URI"),
    );
    expect(() => new MLflowLogger({ trackingUri: "here", environment: {} })).toThrow(
      breaking("not-an-http-address", '"here"'),
    );
  });
});

describe("WandbLogger", () => {
  it("logs through the package, each step in one run, and a resumed run in a new one", async () => {
    const begun: { options: Record<string, unknown>; steps: number[]; code: number | undefined }[] = [];
    const sdk: WandbSdk = {
      init: (options) => {
        const run = { options, steps: [] as number[], code: undefined as number | undefined };
        begun.push(run);
        return Promise.resolve({
          log: (values, step) => {
            expect(values).not.toHaveProperty("step");
            expect(typeof values["reward/mean"]).toBe("number");
            run.steps.push(step!);
          },
          finish: (code) => {
            run.code = code;
            return Promise.resolve();
          },
        });
      },
    };
    const folder = join(temporaryFolder(), "mine");
    for (const [resume, stopAt] of [
      [false, 6],
      [true, Infinity],
    ] as const) {
      const callbacks = [
        {
          name: "killer",
          onStep: ({ step }: { step: number }) => {
            if (step === stopAt) throw new Error("killed");
          },
        },
      ];
      const { system, trainer } = assemble(
        { ...QUICK, trainingSteps: 8, checkpointEvery: 2, evaluateEvery: 0 },
        { runDirectory: folder, resume, loggers: [new WandbLogger({ project: "p", sdk })], callbacks },
      );
      await trainer.train().catch(() => null);
      trainer.dispose();
      system.dispose();
    }
    // The checkpoint is of step 4; step 5 was computed again, and had been logged.
    expect(begun.map(({ steps }) => steps)).toEqual([
      [1, 2, 3, 4, 5],
      [6, 7, 8],
    ]);
    expect(begun.map(({ options }) => options["name"])).toEqual(["mine", "mine from step 6"]);
    expect(begun.map(({ code }) => code)).toEqual([1, 0]);
  });

  it("refuses offline mode, which the package does not have", async () => {
    vi.stubEnv("WANDB_MODE", "offline");
    await expect(new WandbLogger().open(RUN)).rejects.toThrow(breaking("offline-unsupported", "WANDB_MODE"));
    vi.unstubAllEnvs();
  });

  it("says how to install a missing package", async () => {
    await expect(new WandbLogger().open(RUN)).rejects.toThrow(breaking("package-not-found", "@wandb/sdk"));
  });
});
