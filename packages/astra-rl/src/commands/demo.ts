import { join, resolve } from "node:path";
import { Command, Option } from "@commander-js/extra-typings";
import { AstraError, writeFileAtomic } from "@astra-rl/base";
import {
  checkpointOf,
  EMBEDDED,
  kindsOf,
  parseOverride,
  readConfiguration,
  assembleSystem,
  embeddedConfigurationPath,
  loadPrompts,
  modelFormats,
  modelIdentity,
  withSettled,
  writeResolvedConfiguration,
  type Configuration,
  type DemoSubject,
  type Override,
} from "@astra-rl/assembly";
import {
  evaluateSystem,
  evaluationProgress,
  loggerOf,
  stopOnInterrupt,
  setOption,
  duration,
  requireAlone,
  trainFollowed,
  trainSystem,
} from "@astra-rl/assembly/command";
import {
  NoVerdictError,
  quietOption,
  wholeNumber,
  createOutput,
  type Streams,
} from "@astra-rl/assembly/program";
import { compareEvaluations } from "@astra-rl/analysis";
import {
  doubtsOfEvaluation,
  doubtsOfFigures,
  CANARY_RULES,
  stringifyEvaluation,
  checkNewRunFolder,
  defaultRunFolder,
  prepareRunFolder,
  type ModelIdentity,
  type RunLock,
} from "@astra-rl/records";
import { comparisonReport, doubtLines, htmlReport, readReport } from "@astra-rl/report";
import { writeCard } from "@astra-rl/contrib/training";
import "@astra-rl/contrib/kinds";

/** `astra-rl demo`: the full pipeline on the embedded world, from an untrained tester to a before/after table. */
export function demoCommand(streams: Streams) {
  return new Command("demo")
    .description("Train the embedded tester against the embedded target and show before and after")
    .option("--seed <n>", "seed of all random draws", wholeNumber(0))
    .addOption(
      new Option(
        "--algorithm <name>",
        "training algorithm (default: grpo; with --chat, --goals or --agent dpo)",
      ).choices(kindsOf("algorithm").map(({ name }) => name)),
    )
    .addOption(
      new Option("--chat", "use a model with a chat template")
        .conflicts(["goals", "agent", "injection"])
        .default(false),
    )
    .addOption(
      new Option("--agent", "use an agent that calls tools; harm is in the calls")
        .conflicts(["novelty", "goals"])
        .default(false),
    )
    .addOption(
      new Option("--injection", "like --agent, but the tester's text is in what a tool returns")
        .implies({ agent: true })
        .default(false),
    )
    .option("--novelty", "also reward novel probes", false)
    .addOption(
      new Option("--goals", "a tester that is told what the target is to do, in another world")
        .default(false)
        .conflicts("novelty"),
    )
    .option("--run-dir <folder>", "run folder (default: runs/demo-<time>)")
    .addOption(setOption())
    .option("--json", "print the comparison as JSON instead of a table", false)
    .addOption(quietOption())
    .action(async ({ seed, algorithm, chat, agent, injection, novelty, goals, runDir, set, json, quiet }) => {
      requireAlone("demo");
      const output = createOutput(streams, {
        quiet,
        mayOutlive: "the demo continues; report.txt will contain the table",
      });
      const started = performance.now();
      const subject = Object.entries({ injection, agent, goals, chat }).find(
        ([, isChosen]) => isChosen,
      )?.[0] as DemoSubject | undefined;
      const given = await demoConfiguration(seed, algorithm, { subject, novelty, set: set ?? [] });
      const folder = runDir ?? defaultRunFolder("demo.yaml");
      checkNewRunFolder(folder);
      const prompts = await loadPrompts(given, "test");
      const assembled = await assembleSystem(given, {}, {}, true);
      const { system } = assembled;
      // As recorded by `train`, so that the command that resumes a stopped demo finds the original settings.
      const configuration = withSettled(given, system);
      const interruption = stopOnInterrupt(output);
      const formats = modelFormats(assembled);
      const evaluated = (tester: ModelIdentity) => {
        const show = evaluationProgress(output);
        return evaluateSystem(configuration, assembled, {
          split: "test",
          prompts,
          tester,
          // A demonstration is shown in any case.
          accept: CANARY_RULES,
          logger: loggerOf(output),
          onProgress: (done, total) => {
            show(done, total);
            if (!interruption.signal.aborted || done === total) return;
            throw new AstraError(`demo: stopped after ${done} of ${total} rollouts of an evaluation`);
          },
        });
      };
      let lock = null as RunLock | null;
      try {
        output.note(
          `A tester learns to make ${AIMS[subject ?? "chat"]} (${configuration.algorithm.type}, seed ${configuration.seed}).`,
        );
        const { trainingSteps } = configuration.training;
        lock = prepareRunFolder(folder, () => writeResolvedConfiguration(folder, configuration));
        output.note(`1. The untrained tester, on ${prompts.length} held-out prompts`);
        const before = await evaluated(await modelIdentity(checkpointOf(configuration.models.tester)!));
        output.note(
          `2. Training: ${trainingSteps} steps of ${configuration.training.numEpisodesPerExperience} conversation trees`,
        );
        const resumption = () =>
          `astra-rl train ${join(folder, "config.resolved.yaml")} --run-dir ${folder} --resume`;
        await trainFollowed(output, { command: "demo", resumption }, ({ onLoaded, ...following }) => {
          onLoaded({ configuration, ...assembled });
          return trainSystem(configuration, assembled, {
            ...following,
            folder,
            formats,
            lock: () => lock!,
            signal: interruption.signal,
            logger: {
              ...following.logger,
              info: () => {},
            },
          });
        });
        output.note("3. The trained tester, on the same prompts");
        const trained = await modelIdentity(join(folder, "checkpoints", "last"));
        const after = await evaluated({ ...trained, model: "checkpoints/last" });
        const comparison = compareEvaluations(before, after);
        const lines = comparisonReport({ before, after, comparison });
        lock!.check();
        writeFileAtomic(join(folder, "evaluation-before.json"), [stringifyEvaluation(before)]);
        writeFileAtomic(join(folder, "evaluation-after.json"), [stringifyEvaluation(after)]);
        writeFileAtomic(join(folder, "comparison.json"), [`${JSON.stringify(comparison, null, 2)}\n`]);
        writeFileAtomic(join(folder, "report.txt"), [`${lines.join("\n")}\n`]);
        const page = join(folder, "report.html");
        writeFileAtomic(page, [htmlReport(readReport([folder]))]);
        writeCard(folder);
        if (json) {
          output.json({ runDirectory: folder, before: before.summary, after: after.summary, comparison });
          for (const line of doubtLines(after)) output.alert(line);
        } else for (const line of ["", ...lines, "", ...whereFilesLie(folder)]) output.result(line);
        output.note(`Finished in ${duration((performance.now() - started) / 1000)}.`);
        output.note(`Open in a browser: ${resolve(page)}`);
        if (!json) for (const line of ["", ...withYourOwnModels()]) output.result(line);
        const doubts = doubtsOfFigures(doubtsOfEvaluation(after.summary));
        if (doubts.length > 0) throw new NoVerdictError("demo", doubts);
      } finally {
        interruption.end();
        lock?.release();
        system.dispose();
      }
    });
}

const AIMS: Readonly<Record<DemoSubject, string>> = {
  chat: "a target answer rudely",
  goals: "a target do what its goal names",
  agent: "a shop's agent refund to an account that a customer names",
  injection: "a shop's agent write to an address that it has read on a page",
};

async function demoConfiguration(
  seed: number | undefined,
  algorithm: string | undefined,
  { subject, novelty, set }: { subject: DemoSubject | undefined; novelty: boolean; set: readonly Override[] },
): Promise<Configuration> {
  // GRPO's testers find what is harmful and likely at once; the other subjects' learn by DPO.
  const own = algorithm ?? (subject !== undefined || novelty ? undefined : "grpo");
  const file = embeddedConfigurationPath(own, { subject, novelty });
  const { algorithm: preset } = await readConfiguration(file);
  const isPreset = algorithm === undefined || algorithm === preset.type;
  const chosen = isPreset ? [] : [parseOverride(`algorithm={type: ${algorithm}}`)];
  const model = `${EMBEDDED}:chat`;
  if (subject === "chat") {
    chosen.push(...["tester", "target"].map((role) => parseOverride(`models.${role}=${model}`)));
  }
  const configuration = await readConfiguration(file, { overrides: [...chosen, ...set] });
  if (seed !== undefined) configuration.seed = seed;
  return configuration;
}

/** The demo's closing lines. */
function withYourOwnModels(): string[] {
  return [
    "The same with your own models:",
    "  npx astra-rl init run.yaml --tester path/to/tester --target path/to/target",
    "  npx astra-rl train run.yaml --run-dir runs/first",
  ];
}

function whereFilesLie(folder: string): string[] {
  const files = [
    ["report.html", "a page with everything: curves, before and after, trees, conversations"],
    ["report.txt", "this table"],
    ["evaluation-before.json, evaluation-after.json", "every conversation, with its scores"],
    ["metrics.jsonl, graphs.jsonl", "a line for each training step, and for each tree it learned from"],
    ["checkpoints/best, checkpoints/last", "the trained tester, in Hugging Face format"],
    ["config.resolved.yaml", "the configuration with all defaults"],
  ];
  const width = Math.max(...files.map(([name]) => name!.length));
  return [`Files in ${folder}:`, ...files.map(([name, what]) => `  ${name!.padEnd(width)}  ${what}`)];
}
