import { Command, type CommandUnknownOpts } from "@commander-js/extra-typings";
import { AstraError, UsageError } from "@astra-rl/base";
import {
  distributed,
  engineInformation,
  noGrad,
  ones,
  scope,
  synchronize,
  type DType,
} from "@astra-rl/torch";
import { fastestTypes } from "@astra-rl/method";
import { inProcesses, processesOption } from "@astra-rl/assembly/command";
import { createOutput, type Output, type Streams } from "@astra-rl/assembly/program";
import { measureConnection, showConnection } from "./diagnose-ranks.js";
import { diagnoseServer, showServer, type ServerPlace } from "./diagnose-server.js";
import { diagnose, type EngineFacts, type Facts } from "./diagnosis.js";

/** `astra-rl doctor`: shows the engine, its speed, and problems. Exit code 1 if nothing works. */
export function doctorCommand(streams: Streams) {
  return new Command("doctor")
    .description("Check the installation: libtorch, speed, problems found; or what a model's server supports")
    .option("--json", "print the result as JSON", false)
    .option("--distributed", "measure the connection between the processes that a launcher started", false)
    .addOption(processesOption())
    .option("--server <url>", "probe a server as a run does at its start; the base URL of its API")
    .option("--model <name>", "with --server: the model's name there")
    .option("--api <name>", "with --server: its API (default: chat, that of OpenAI)")
    .option("--api-key-env <variable>", "with --server: the environment variable that holds the API key")
    .action(async ({ json, distributed: measures, processes = 1, ...served }, command) => {
      const place = serverPlace(served);
      if (place !== null) {
        if (measures || processes > 1)
          throw new UsageError(
            "inapplicable-option",
            "--server: cannot be combined with --distributed or --processes",
          );
        const output = createOutput(streams);
        const facts = await diagnoseServer(place);
        if (json) output.json(facts);
        else showServer(facts, output);
        return;
      }
      if (measures) {
        await diagnoseRanks(createOutput(streams, { isRanked: true }), json, processes, command);
        return;
      }
      if (processes > 1)
        throw new UsageError("requires-option", "--processes: requires --distributed; add it");
      const output = createOutput(streams);
      const facts = gather();
      const problems = diagnose(facts);
      if (json) output.json({ ...facts, problems });
      else {
        show(facts, output);
        if (problems.length === 0) output.result("No problems found.");
        for (const { severity, text } of problems) output.result(`${severity}: ${text}`);
      }
      if (problems.some(({ severity }) => severity === "broken")) {
        throw new AstraError("doctor: the installation is broken; see above");
      }
    });
}

/** The server that the options name; null for none. @throws UsageError for options that lack another one */
function serverPlace({
  server: baseURL,
  model,
  api,
  apiKeyEnv,
}: {
  server?: string;
  model?: string;
  api?: string;
  apiKeyEnv?: string;
}): ServerPlace | null {
  const others = { "--model": model, "--api": api, "--api-key-env": apiKeyEnv };
  if (baseURL === undefined) {
    const [given] = Object.entries(others).find(([, value]) => value !== undefined) ?? [];
    if (given === undefined) return null;
    throw new UsageError("requires-option", `${given}: requires --server; add it`);
  }
  if (model === undefined)
    throw new UsageError("requires-option", "--server: requires --model, the model's name there; add it");
  return {
    baseURL,
    model,
    // Checked with the other options of a model behind a server.
    ...(api === undefined ? {} : { api: api as NonNullable<ServerPlace["api"]> }),
    ...(apiKeyEnv === undefined ? {} : { apiKeyEnv }),
  };
}

async function diagnoseRanks(
  output: Output,
  json: boolean,
  processes: number,
  command: CommandUnknownOpts,
): Promise<void> {
  if (processes === 1 && distributed.launchedOptions() === null) {
    throw new UsageError(
      "no-launcher",
      "--distributed: no launcher has started several processes; start it like a training run, with torchrun " +
        "--no-python, " +
        "srun or mpirun, or add --processes 2 to test this machine",
    );
  }
  await inProcesses(processes, command, output, async () => {
    const facts = await measureConnection();
    if (json) output.json(facts);
    else showConnection(facts, output);
  });
}

function gather(): Facts {
  const node = process.versions.node;
  try {
    const { configuration: _, ...information } = engineInformation();
    const gemm = { float32: gemmRate("float32"), bfloat16: gemmRate("bfloat16") };
    const computeTypes = fastestTypes(information, "cpu", Infinity);
    return { node, engine: { ...information, gemm, computeTypes }, engineError: null };
  } catch (error) {
    return { node, engine: null, engineError: (error as Error).message };
  }
}

/** GFLOP/s of square matrix products: the best of several, because other processes only slow it down. */
function gemmRate(dtype: DType, size = 1024, seconds = 0.4): number {
  return scope(() =>
    noGrad(() => {
      const a = ones([size, size], { dtype });
      const b = ones([size, size], { dtype });
      let best = Infinity;
      const end = performance.now() + seconds * 1000;
      // Warm-up: the first product initializes threads and buffers.
      a.matmul(b).dispose();
      do {
        const start = performance.now();
        a.matmul(b).dispose();
        synchronize("cpu");
        best = Math.min(best, performance.now() - start);
      } while (performance.now() < end);
      return Math.round((2 * size ** 3) / (best / 1000) / 1e9);
    }),
  );
}

function show({ node, engine }: Facts, output: Output): void {
  const line = (name: string, value: string) => output.result(`${name.padEnd(10)}${value}`);
  line("Node", node);
  if (engine === null) {
    line("engine", "not loaded; see below");
    return;
  }
  line("libtorch", `${engine.libtorch} from ${engine.origin}`);
  line("engine", engine.addon);
  line("BLAS", blasText(engine));
  line("threads", `${engine.threads} on ${engine.physicalCores} cores`);
  line("ISA", `${engine.isa}${process.env["ASTRA_ISA"] ? ", set by ASTRA_ISA" : ""}`);
  line("bf16", engine.bf16 ? "in hardware" : "not in hardware");
  line("auto", autoText(engine));
  line(
    "CUDA",
    engine.cudaDevices > 0
      ? `${engine.cudaDevices} devices`
      : engine.cuda
        ? "built in, but no device"
        : "none",
  );
  line("GEMM", `${engine.gemm.float32} GFLOP/s float32, ${engine.gemm.bfloat16} GFLOP/s bfloat16`);
}

/** What dtype "auto" resolves to, and why. */
function autoText({ computeTypes: { rollouts, updates, reason } }: EngineFacts): string {
  const types = rollouts === updates ? rollouts : `${rollouts} in rollouts, ${updates} in updates`;
  return `${types}: ${reason}${rollouts === "bfloat16" ? "; float32 for small models" : ""}`;
}

function blasText({ blas, coreType, blasUsesOpenMp }: EngineFacts): string {
  const threading = blasUsesOpenMp === null ? "" : blasUsesOpenMp ? ", OpenMP" : ", own threads";
  return `${blas}${coreType === null ? "" : `, core type ${coreType}`}${threading}`;
}
