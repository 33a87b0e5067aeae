import { once } from "node:events";
import { basename, resolve } from "node:path";
import { Command, InvalidArgumentError, Option } from "@commander-js/extra-typings";
import {
  Codec,
  ContinuousBatch,
  formatOf,
  type LoadedCausalLM,
  type Sampling,
  type ModelFormat,
} from "@astra-rl/lm";
import { UsageError } from "@astra-rl/base";
import { modelSource, checkpointOf, promptText, readPromptFile } from "@astra-rl/assembly";
import {
  stopOnInterrupt,
  deviceOption,
  downloadNotes,
  dtypeOption,
  loggerOf,
  noteHubModel,
  readCommandConfiguration,
} from "@astra-rl/assembly/command";
import {
  quietOption,
  repeated,
  wholeNumber,
  createOutput,
  type Output,
  type Streams,
} from "@astra-rl/assembly/program";
import { ModelCache, DEFAULT_SAMPLING, type InferenceDType } from "@astra-rl/method";
import { requireToken, serve, type ServedModel } from "@astra-rl/serve";
import "@astra-rl/contrib/kinds";

/** `--adapter NAME=FOLDER`, which may be repeated. */
const adapterOption = () =>
  new Option(
    "--adapter <name=folder>",
    "serve a LoRA adapter of the model under this name; repeatable",
  ).argParser(
    repeated((text): [name: string, folder: string] => {
      const at = text.indexOf("=");
      if (at < 1 || at === text.length - 1) throw new InvalidArgumentError("It must be NAME=FOLDER.");
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );

/** `astra-rl serve`: a model of this machine behind OpenAI's API, as a target, or as an attacker for other tools. */
export function serveCommand(streams: Streams) {
  return new Command("serve")
    .description("Serve a model over OpenAI's API: as a target, or as an attacker for other tools")
    .option("--model <model>", "folder or hub id (default: the model of --config)")
    .option(
      "--config <file>",
      "configuration file, from which the conversation format and generation settings of the role are used",
    )
    .addOption(
      new Option(
        "--role <role>",
        "tester: the user takes the target's part, and the message is returned in the requested JSON",
      )
        .choices(["target", "tester"])
        .default("target" as const),
    )
    .addOption(adapterOption())
    .option("--name <name>", "the model's name in the API (default: the folder's name)")
    .option(
      "--host <address>",
      "address to listen on; any address other than loopback requires --token-env",
      "127.0.0.1",
    )
    .option("--port <n>", "port; 0 chooses a free port", wholeNumber(0, 65_535), 8000)
    .option("--token-env <variable>", "environment variable with the token that clients send")
    .option("--parallel <n>", "number of sequences generated in parallel", wholeNumber(1, 1024), 16)
    .option(
      "--queue <n>",
      "maximum number of waiting sequences; further requests are answered with status 429",
      wholeNumber(0),
      256,
    )
    .option(
      "--cache-memory <mib>",
      "memory of the key/value cache in MiB; it limits the context window",
      wholeNumber(1),
      4096,
    )
    .addOption(
      new Option("--system <whose>", "tester: which system prompt to use, the model's own or the request's")
        .choices(["ours", "theirs"])
        .default("ours" as const),
    )
    .option(
      "--prompts <file>",
      "tester: prompts that replace the first user message, which is often an instruction",
    )
    .addOption(
      new Option(
        "--goal <from>",
        "tester: its goal if a request has none in its field goal; first-message: the first user message",
      ).choices(["first-message"] as const),
    )
    .option(
      "--json-field <name>",
      "tester: key of the message in JSON (default: next_message, prompt or the first text)",
    )
    .addOption(deviceOption())
    .addOption(dtypeOption().default(undefined, "the one of --config, else float32"))
    .addOption(quietOption())
    .action(async (options) => {
      const output = createOutput(streams, { quiet: options.quiet });
      if (options.goal !== undefined && options.role === "target") {
        throw new UsageError(
          "inapplicable-option",
          "--goal: is for --role tester; a target never reads the goal, so leave it out",
        );
      }
      const { path, format, date, sampling, ...kept } = await chosenModel(options, output);
      // Notes about those of a configuration were printed when it was read.
      if (options.model !== undefined) noteHubModel("--model", path, loggerOf(output));
      const token = tokenFrom(options.tokenEnv);
      const prompts =
        options.prompts === undefined
          ? []
          : (await readPromptFile(options.prompts)).map((prompt) => promptText(prompt));
      const { device, role, dtype: inferenceDtype = kept.inferenceDtype, adapter = [] } = options;
      const hub = downloadNotes(output);
      const source = modelSource(path);
      const shelf = await ModelCache.open({ ...kept, device, inferenceDtype, hub }, { target: [source] });
      const batches: ContinuousBatch[] = [];
      try {
        const cacheBytes = (options.cacheMemory * 2 ** 20) / (1 + adapter.length);
        const served = (name: string, { model, tokenizer }: LoadedCausalLM): ServedModel => {
          const batch = new ContinuousBatch(model, Codec.of(tokenizer), {
            rows: options.parallel,
            cacheBytes,
          });
          batches.push(batch);
          const { jsonField, system, goal } = options;
          const reading = { role, format, date, system, prompts, sampling };
          const given = {
            ...(jsonField === undefined ? {} : { jsonField }),
            ...(goal === undefined ? {} : { goal }),
          };
          return { name, batch, tokenizer, ...reading, ...given };
        };
        const models = [served(options.name ?? basename(resolve(path)), await shelf.frozen("target"))];
        for (const [name, folder] of adapter) models.push(served(name, await shelf.frozen("target", folder)));
        checkNames(models);
        const { host, port, queue } = options;
        const log = (text: string) => output.alert(text);
        const running = await serve(models, {
          host,
          port,
          queue,
          log,
          ...(token === undefined ? {} : { token }),
        });
        output.result(`${running.url}/v1`);
        for (const { name, batch } of models) {
          output.note(
            `  ${name} (${role}): a window of ${batch.window} tokens, ${options.parallel} sequences at a time`,
          );
        }
        const interruption = stopOnInterrupt(
          output,
          "Stopping after the requests in progress; press Ctrl-C again to stop immediately.",
        );
        if (!interruption.signal.aborted) await once(interruption.signal, "abort");
        await running.stop();
        interruption.end();
      } finally {
        for (const batch of batches) batch.dispose();
        shelf.dispose();
      }
    });
}

interface ModelChoice {
  model?: string | undefined;
  config?: string | undefined;
  role: "tester" | "target";
}

interface ChosenModel {
  path: string;
  format: ModelFormat;
  date: Date;
  sampling: Partial<Sampling>;
  inferenceDtype: InferenceDType;
  targetTokenizer?: string;
}

/** The checkpoint, its conversation format, and its default sampling settings. */
async function chosenModel({ model, config, role }: ModelChoice, output: Output): Promise<ChosenModel> {
  // Templates that write a date get today's, unless the configuration has one.
  const today = new Date();
  if (config === undefined) {
    if (model === undefined)
      throw new UsageError("model-required", "serve: needs --model, or a --config that has one");
    // A tester uses the default sampling of a run; a target the API's defaults.
    const sampling = role === "tester" ? DEFAULT_SAMPLING : {};
    return { path: model, format: {}, date: today, sampling, inferenceDtype: "float32" };
  }
  const { models, generation } = await readCommandConfiguration(config, {}, output);
  const setting = models[role];
  const path = model ?? checkpointOf(setting);
  if (path === null) {
    throw new UsageError(
      "not-a-checkpoint",
      `${config}: models.${role} is not a checkpoint and cannot be served; give --model`,
    );
  }
  const date = models.date === undefined ? today : new Date(`${models.date}T00:00:00`);
  const format = checkpointOf(setting) === null ? {} : formatOf(setting);
  const tokenizer = models[`${role}Tokenizer`];
  return {
    path,
    format,
    date,
    sampling: generation[role],
    inferenceDtype: models.dtype,
    ...(tokenizer === undefined ? {} : { targetTokenizer: tokenizer }),
  };
}

function tokenFrom(variable: string | undefined): string | undefined {
  if (variable === undefined) return undefined;
  const token = process.env[variable];
  if (token !== undefined && token.trim() !== "") {
    requireToken(token, `--token-env: ${variable}`);
    return token;
  }
  throw new UsageError(
    "unset-variable",
    `--token-env: the environment variable ${variable} is not set or empty; put the token there`,
  );
}

function checkNames(models: readonly ServedModel[]): void {
  const names = models.map(({ name }) => name);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined)
    throw new UsageError(
      "duplicate-name",
      `--adapter: two models are named ${twice}; give each a unique name`,
    );
}
