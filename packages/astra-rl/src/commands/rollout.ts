import { Command } from "@commander-js/extra-typings";
import { UsageError } from "@astra-rl/base";
import {
  withMemoryAdvice,
  growInShares,
  graphRecord,
  type Graph,
  type Node,
  type System,
  type TokenTeller,
} from "@astra-rl/method";
import { plain, visible } from "@astra-rl/report";
import { assembleSampler, assembleEvaluationSystem, loadPrompts } from "@astra-rl/assembly";
import {
  introduceModels,
  spendingNotesOfRanks,
  loggerOf,
  downloadNotes,
  readCommandConfiguration,
  setOption,
  testerOption,
  Progress,
  inProcesses,
  processesOption,
  requireSame,
} from "@astra-rl/assembly/command";
import {
  quietOption,
  wholeNumber,
  createOutput,
  type Output,
  type Streams,
} from "@astra-rl/assembly/program";
import "@astra-rl/contrib/kinds";

// Episodes per batch: enough to be efficient, few enough that lines appear regularly.
const TOGETHER = 64;
const MOST_EPISODES = 1_000_000;

const declared = () =>
  new Command("rollout")
    .description("Generate conversation trees and print them; with --json one graph per line")
    .argument("<config>", "configuration file")
    .addOption(testerOption())
    .option("--episodes <n>", "number of graphs", wholeNumber(1, MOST_EPISODES), 1)
    .option("--seed <n>", "replaces the configuration's seed", wholeNumber(0))
    .addOption(setOption())
    .option("--json", "print one JSON line {context, children} per graph", false)
    .option("--tokens", "with --json: include the token ids that each model read and generated", false)
    .addOption(quietOption())
    .addOption(processesOption());

type RolloutOptions = ReturnType<ReturnType<typeof declared>["opts"]>;

/** `astra-rl rollout CONFIG`: rolls out training graphs and prints them, one JSON line each with --json. */
export const rolloutCommand = (streams: Streams) =>
  declared().action(async (config, { processes = 1, ...options }, command) => {
    const output = createOutput(streams, { quiet: options.quiet, isRanked: true });
    await inProcesses(processes, command, output, () => rollout(config, options, output));
  });

async function rollout(
  config: string,
  { episodes, seed, json, tokens, ...given }: RolloutOptions,
  output: Output,
): Promise<void> {
  if (tokens && !json)
    throw new UsageError("requires-option", "--tokens: token ids are shown as JSON only; add --json");
  const configuration = await readCommandConfiguration(config, given, output);
  if (seed !== undefined) configuration.seed = seed;
  await requireSame("the configuration", JSON.stringify(configuration));
  const prompts = await loadPrompts(configuration, "train", downloadNotes(output));
  const assembled = await assembleEvaluationSystem<System>(configuration, downloadNotes(output));
  const { system } = assembled;
  const teller = system as unknown as Partial<TokenTeller>;
  try {
    await introduceModels(assembled, loggerOf(output), prompts);
    if (tokens && teller.tokensOf === undefined) {
      throw new UsageError(
        "no-token-ids",
        "--tokens: the system of this configuration does not provide token ids (tokensOf)",
      );
    }
    const sampler = await assembleSampler(configuration, assembled, prompts);
    const progress = new Progress(output, { unit: "episode", total: episodes });
    for (let done = 0; done < episodes; done += TOGETHER) {
      const starts = Array.from({ length: Math.min(TOGETHER, episodes - done) }, (_, index) => ({
        seed: configuration.seed,
        episode: done + index,
      }));
      const { graphs } = await growInShares(starts, sampler, async (share) => {
        return {
          graphs: await withMemoryAdvice("rollout", () => sampler.rolloutMany(share)),
          about: [],
        };
      });
      for (const graph of graphs) {
        if (json)
          output.json(graphRecord(graph, tokens ? { tokensOf: (node) => teller.tokensOf!(node) } : {}));
        else showGraph(graph, output);
      }
      progress.update(done + starts.length);
    }
    progress.end();
    for (const line of await spendingNotesOfRanks(assembled)) output.note(line);
  } finally {
    system.dispose();
  }
}

function showGraph(graph: Graph, output: Output): void {
  output.result(`episode ${graph.episode}  ${visible(String(graph.context).trim())}`);
  const show = (node: Node, indent: string) => {
    const worth =
      node.failure === null ? `reward ${plain(node.reward)}` : `failed: ${visible(node.failure.message)}`;
    output.result(`${indent}tester  ${visible(String(node.probe).trim())}`);
    output.result(`${indent}target  ${visible(String(node.response).trim())}   [${worth}]`);
    for (const child of node.children) show(child, `${indent}  `);
  };
  for (const child of graph.children) show(child, "  ");
}
