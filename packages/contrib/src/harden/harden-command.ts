import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { Command, Option } from "@commander-js/extra-typings";
import {
  CacheBudget,
  ChatFormat,
  LocalModel,
  LoRA,
  Conversation,
  Message,
  formatOf,
  makeFormat,
  type ModelFormat,
} from "@astra-rl/lm";
import { AstraError, makeFolder, UsageError } from "@astra-rl/base";
import {
  modelIdentity,
  modelSource,
  checkpointOf,
  readConfiguration,
  type Configuration,
} from "@astra-rl/assembly";
import { stopOnInterrupt, downloadNotes, requireAlone } from "@astra-rl/assembly/command";
import {
  runProgram,
  trainArguments,
  EXIT,
  readEvaluation,
  quietOption,
  repeated,
  wholeNumber,
  createOutput,
  type Output,
  type Streams,
} from "@astra-rl/assembly/program";
import { compareEvaluations } from "@astra-rl/analysis";
import { ModelCache } from "@astra-rl/method";
import type { EvaluationRecord } from "@astra-rl/records";
import { hardenReport, type Hardened } from "./harden-report.js";
import { attacksOf, FEWEST_ATTACKS, writePrompts, writeTraining, type TargetFacts } from "./harden-files.js";
import "../kinds.js";

/** Number of responses whose likelihood measures side effects. */
const MOST_CONTROLS = 400;

/** `astra-rl harden RUN`: trains the target of a run to resist the attacks that the run found. */
export function hardenCommand(streams: Streams) {
  return new Command("harden")
    .description(
      "Train a run's target to resist the attacks that the run found, and measure the remaining success",
    )
    .argument("<run>", "run folder with graphs and a tester")
    .requiredOption("--output <folder>", "output folder; repeat the same command to resume")
    .option("--steps <n>", "training steps of the target", wholeNumber(1), 24)
    .addOption(
      new Option("--set <key=value>", "replace a value of the target's training; repeatable").argParser(
        repeated(String),
      ),
    )
    .option("--no-new-tester", "do not train a second tester against the hardened target")
    .option(
      "--rounds <n>",
      "number of rounds; each further one also uses the attacks of the new tester, with a new adapter on the " +
        "original target",
      wholeNumber(1, 20),
      1,
    )
    .addOption(quietOption())
    .action(async (run, { output: folder, steps, set = [], newTester, rounds, quiet }) => {
      requireAlone("harden");
      const output = createOutput(streams, { quiet });
      if (rounds > 1 && !newTester) {
        throw new UsageError(
          "requires-option",
          "--rounds: more than one round requires a new tester; leave --no-new-tester out",
        );
      }
      const interruption = stopOnInterrupt(output);
      try {
        const options = { run, folder, steps, set, newTester, quiet };
        for await (const { round, into, result } of hardenRounds(
          options,
          rounds,
          output,
          interruption.signal,
        )) {
          if (rounds > 1) output.result(`${round > 1 ? "\n" : ""}Round ${round}`);
          for (const line of hardenReport(result)) output.result(line);
          output.note(`The hardened target: ${join(into, "target", "checkpoints", "best")}`);
        }
      } finally {
        interruption.end();
      }
    });
}

interface HardenOptions {
  run: string;
  folder: string;
  steps: number;
  set: readonly string[];
  newTester: boolean;
  quiet: boolean;
}

/** The inputs of a round. */
interface RoundState {
  /** Runs whose attacks the target is trained on: the given one, and those of the new testers so far. */
  runs: readonly string[];
  /** Checkpoints of the last tester and the last target. */
  tester: string;
  target: string;
  /** Evaluation of this tester against this target, if it is known already. */
  before: EvaluationRecord | null;
  /** Evaluation in which the original target answered; its harmless answers are the control set. */
  controls: EvaluationRecord | null;
}

/** Runs rounds until the new tester finds too few attacks to train on. */
async function* hardenRounds(
  options: HardenOptions,
  rounds: number,
  output: Output,
  signal: AbortSignal,
): AsyncGenerator<{ round: number; into: string; result: Hardened }> {
  const { run, folder } = options;
  const configuration = await readConfiguration(join(run, "config.resolved.yaml"), {});
  const target = checkpointOf(configuration.models.target);
  if (target === null) {
    throw new UsageError(
      "not-a-checkpoint",
      `${run}: models.target must be a checkpoint, since an agent, a model on a server or one of a module cannot be trained`,
    );
  }
  const tester = ["best", "last"]
    .map((tag) => join(run, "checkpoints", tag))
    .find((each) => existsSync(each));
  if (tester === undefined)
    throw new UsageError(
      "no-checkpoint",
      `${run}: has no checkpoints; give the folder of a run that was trained`,
    );
  let from: RoundState = { runs: [run], tester, target, before: null, controls: null };
  for (let round = 1; round <= rounds; round++) {
    const into = round === 1 ? folder : join(folder, `round-${round}`);
    const found =
      round === 1 ? Infinity : attacksOf(from.runs.at(-1)!, configuration.evaluation.threshold).length;
    if (found < FEWEST_ATTACKS) {
      output.result(
        `\nRound ${round}: the new tester found ${found} attacks in training, too few to train on; hardening ends.`,
      );
      return;
    }
    const result = await harden(
      { ...options, folder: into },
      { configuration, target, from },
      output,
      signal,
    );
    yield { round, into, result };
    from = {
      runs: [...from.runs, join(into, "tester")],
      tester: join(into, "tester", "checkpoints", "best"),
      target: join(into, "target", "checkpoints", "best"),
      before: result.again,
      controls: from.controls ?? result.before,
    };
  }
}

async function harden(
  options: HardenOptions,
  { configuration, target, from }: { configuration: Configuration; target: string; from: RoundState },
  output: Output,
  signal: AbortSignal,
): Promise<Hardened> {
  const { run, folder, steps, set, newTester } = options;
  const file = join(run, "config.resolved.yaml");
  const setting = configuration.models.target;
  const { tester } = from;
  makeFolder(resolve(folder));
  const facts = await factsOf(target, formatOf(setting), output);
  const found = writePrompts(from.runs, folder, { threshold: configuration.evaluation.threshold, ...facts });
  writeTraining(configuration, { folder, steps, ...facts });
  const stage = async (what: string, args: readonly string[]) => {
    output.note(what);
    const code = await runProgram([...args, ...(options.quiet ? ["--quiet"] : [])], signal);
    if (signal.aborted)
      throw new AstraError(`harden: stopped; run the same command again to resume in ${folder}`);
    // The training of a target without harmful responses gives no verdict.
    if (code !== EXIT.done && code !== EXIT.noVerdict)
      throw new AstraError(`harden: astra-rl ${args.join(" ")} ended with code ${code}`);
  };
  const train = (what: string, config: string, into: string, more: readonly string[]) =>
    stage(what, [...trainArguments(config, into), ...more]);
  const evaluate = async (
    what: string,
    name: string,
    [speaker, listener]: readonly [tester: string, target: string],
    more: readonly string[] = [],
  ): Promise<EvaluationRecord> => {
    const path = join(folder, `${name}.json`);
    if (!existsSync(path)) await stage(what, ["eval", file, "--output", path, "--tester", speaker, ...more]);
    const record = readEvaluation(path);
    for (const [role, model] of [
      ["tester", speaker],
      ["target", listener],
    ] as const) {
      const { files } = await modelIdentity(model, downloadNotes(output));
      if (isDeepStrictEqual(record.measured?.[role].files, files)) continue;
      throw new UsageError(
        "trained-since",
        `${path}: its ${role} has been trained since; give another --output, or remove this file`,
      );
    }
    return record;
  };
  // More steps apply to a resumed run as well.
  const settings = [`training.trainingSteps=${steps}`, ...set].flatMap((text) => ["--set", text]);
  const key = typeof setting === "string" ? "models.target" : "models.target.path";
  const before =
    from.before ??
    (await evaluate("1. The tester against the target as it is", "before", [tester, from.target]));
  const ours = join(folder, "target");
  await train(
    `2. Training the target on ${found} found attacks`,
    join(folder, "harden.yaml"),
    ours,
    settings,
  );
  const hardened = join(ours, "checkpoints", "best");
  const against = ["--set", `${key}=${hardened}`];
  const after = await evaluate(
    "3. The same tester against the hardened target",
    "after",
    [tester, hardened],
    against,
  );
  let again: EvaluationRecord | null = null;
  if (newTester) {
    await train("4. A new tester against the hardened target", file, join(folder, "tester"), against);
    const second = join(folder, "tester", "checkpoints", "best");
    again = await evaluate(
      "5. The new tester against the hardened target",
      "again",
      [second, hardened],
      against,
    );
  }
  const controls = await perplexities(
    setting,
    [modelSource(target), hardened],
    from.controls ?? before,
    output,
  );
  return { found, before, after, comparison: compareEvaluations(before, after), again, ...controls };
}

const factsOf = (target: string, format: ModelFormat, output: Output): Promise<TargetFacts> =>
  withTarget(modelSource(target), output, async (shelf) => {
    const { model, tokenizer } = await shelf.frozen("target");
    const names = [...model.projections().keys()].map((name) => name.split(".").at(-1)!);
    const adapter = await LoRA.configurationOf(shelf.folderOf("target")!);
    return {
      lora: adapter ?? { rank: 16, targetModules: [...new Set(names)] },
      isChat: makeFormat("models.target", tokenizer, "target", format, new Date()) instanceof ChatFormat,
    };
  });

/** Runs work with a loaded checkpoint as the target. */
async function withTarget<T>(
  source: string,
  output: Output,
  work: (shelf: ModelCache) => Promise<T>,
): Promise<T> {
  const options = { inferenceDtype: "float32", hub: downloadNotes(output) } as const;
  const shelf = await ModelCache.open(options, { target: [source] });
  try {
    return await work(shelf);
  } finally {
    shelf.dispose();
  }
}

/** Perplexity of the target's own harmless answers to test prompts, before and after. */
async function perplexities(
  setting: Configuration["models"]["target"],
  models: readonly [before: string, after: string],
  { details, summary }: EvaluationRecord,
  output: Output,
): Promise<Pick<Hardened, "perplexityBefore" | "perplexityAfter" | "nControls">> {
  const controls = details.flatMap(({ per_turn: turns }) => {
    let conversation = Conversation.of(turns[0]?.context ?? "");
    return turns.flatMap((turn) => {
      const after = conversation.append(new Message("tester", turn.probe));
      const message = new Message("target", turn.response);
      conversation = after.append(message);
      const isHarmless = turn.response_harm !== null && turn.response_harm < summary.harm_threshold;
      return isHarmless && turn.response !== "" ? [{ after, message }] : [];
    });
  });
  const chosen = controls.slice(0, MOST_CONTROLS);
  return withTarget(models[0], output, async (shelf) => {
    const format = formatOf(setting);
    const perplexity = async (source: string) => {
      const { model, tokenizer } = await shelf.frozen("target", source);
      const local = new LocalModel("target", {
        role: "target",
        model: () => model,
        tokenizer,
        sampling: { maxNewTokens: 1 },
        cacheBudget: new CacheBudget(2 ** 30),
        format: makeFormat("models.target", tokenizer, "target", format, new Date()),
      });
      const logprobs = (
        await local.logprobs(
          chosen.map(({ after }) => after),
          chosen.map(({ message }) => message),
        )
      ).flat();
      return logprobs.length === 0
        ? null
        : Math.exp(-logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length);
    };
    return {
      perplexityBefore: await perplexity(models[0]),
      perplexityAfter: await perplexity(models[1]),
      nControls: chosen.length,
    };
  });
}
