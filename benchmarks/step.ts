/**
 * The training step of reference_step.py, done by this package: the same checkpoint, prompts, tree, sampling,
 * batch and loss. Prints one JSON line of the same form, with the prompts that each step drew.
 *
 *     npx tsx benchmarks/step.ts --model DIR --prompts FILE.json --episodes 2 [--steps 3] [--from 0]
 *         [--dtype auto|bfloat16|float32] [--update-dtype NAME] [--device cuda] [--lora RANK] [--threads 2] [--seed 0] [--bound]
 *
 * With --from N the episodes are those from training step N on. Without --threads the engine decides. With --bound (not
 * with --lora) it measures this machine's rates with the current instruction set, and prints the minimum time of these
 * steps.
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { engineInformation, liveTensors, setThreads, threads } from "@astra-rl/torch";
import {
  ASTSampler,
  DPO,
  HFASTConfiguration,
  HFASTSystem,
  Scorer,
  toolboxReward,
  Trainer,
  type InferenceDType,
  type ScoreOutcome,
} from "astra-rl";
import { loadCausalLM } from "@astra-rl/lm";
import { rolloutBound, sizesOf, updateBound } from "./bounds.js";
import { measureRoofline } from "./measure.js";

const { values } = parseArgs({
  options: {
    model: { type: "string" },
    prompts: { type: "string" },
    episodes: { type: "string", default: "2" },
    steps: { type: "string", default: "3" },
    from: { type: "string", default: "0" },
    dtype: { type: "string", default: "bfloat16" },
    "update-dtype": { type: "string" },
    device: { type: "string", default: "cpu" },
    lora: { type: "string" },
    threads: { type: "string" },
    seed: { type: "string", default: "0" },
    bound: { type: "boolean", default: false },
  },
});
// Training an adapter has another bound.
const isBoundKnown = !values.bound || values.lora === undefined;
if (values.model === undefined || values.prompts === undefined || !isBoundKnown) {
  console.error(
    "usage: step.ts --model DIR --prompts FILE.json [--dtype NAME] … (--bound goes without --lora)",
  );
  process.exit(2);
}

/** Negligible cost, so that only the models are timed: the share of vowels, as in reference_step.py. */
class VowelScorer extends Scorer {
  override readonly name = "vowels";

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    const share = (text: string) => (text.match(/[aeiou]/g)?.length ?? 0) / Math.max(1, text.length);
    return Promise.resolve(texts.map((text) => ({ score: share(text) })));
  }
}

/** Records the prompts of the last rollouts. */
class WatchedSampler extends ASTSampler {
  drawn: string[] = [];

  override async rolloutMany(starts: Parameters<ASTSampler["rolloutMany"]>[0]) {
    const graphs = await super.rolloutMany(starts);
    this.drawn = graphs.map((graph) => graph.context.toString());
    return graphs;
  }
}

/** Each step with the minimum seconds of its rollouts and updates at this machine's rates. */
async function withBounds(path: string, taken: readonly Step[]) {
  const rates = await measureRoofline();
  const { model, tokenizer } = await loadCausalLM(path, { dtype: "bfloat16" });
  const sizes = sizesOf(model);
  model.dispose();
  return taken.map((step) => {
    const { record, prompts: openers } = step;
    const lengths = openers.map((text) => tokenizer.encode(text).length);
    const updates = {
      read: Number(record["tokens/tester/trained"]),
      // Every probe is in a pair.
      scored: Number(record["tokens/tester/generated"]),
      updates: Number(record["updates/done"]),
    };
    const bound = {
      rollout_s: rolloutBound(lengths, tree, sizes, types.rollouts, rates),
      update_s: updateBound(updates, sizes, types, rates),
    };
    return { ...step, bound };
  });
}

if (values.threads !== undefined) setThreads(Number(values.threads));
const scorer = new VowelScorer();
const tree = { width: 2, depth: 3, newTokens: 32 };
const sampling = { maxNewTokens: tree.newTokens, temperature: 1, topK: 50, topP: 0.9 };
const rank = Number(values.lora);
const projections = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
const adapter =
  values.lora === undefined ? {} : { lora: { rank, alpha: 2 * rank, targetModules: projections } };
const loading = performance.now();
const system = await HFASTSystem.load({
  tester: values.model,
  target: values.model,
  device: values.device,
  scorer,
  inferenceDtype: values.dtype as InferenceDType,
  updateDtype: (values["update-dtype"] ?? values.dtype) as InferenceDType,
  ...adapter,
  generation: { tester: sampling, target: sampling },
  reward: toolboxReward(scorer),
});
const loadSeconds = (performance.now() - loading) / 1000;
const prompts = JSON.parse(readFileSync(values.prompts, "utf8")) as string[];
/** Time and work of a step. */
type Step = Record<string, unknown> & { prompts: string[]; record: Readonly<Record<string, unknown>> };
const steps: Step[] = [];
const sampler = new WatchedSampler(system, prompts, {
  width: tree.width,
  depth: tree.depth,
  seed: Number(values.seed),
});
const trainer = new Trainer(
  new HFASTConfiguration({
    trainingSteps: Number(values.steps),
    numEpisodesPerExperience: Number(values.episodes),
    batchSize: 4,
    learningRate: 1e-5,
    seed: Number(values.seed),
  }),
  sampler,
  new DPO(system, { beta: 0.1 }),
  {
    callbacks: [
      {
        name: "watch",
        onStep: (record) => {
          const rollout = Number(record["time/rollout_s"]);
          const update = Number(record["time/update_s"]);
          steps.push({
            seconds: rollout + update,
            rollout_s: rollout,
            update_s: update,
            generated: Number(record["tokens/tester/generated"]) + Number(record["tokens/target/generated"]),
            loss: record["loss"],
            prompts: sampler.drawn,
            record,
          });
        },
      },
    ],
  },
);
const from = Number(values.from);
trainer.harness.setState({
  seed: Number(values.seed),
  nextEpisode: from * Number(values.episodes),
  nextExperience: from,
});
await trainer.train();
const live = liveTensors();
const types = system.computeTypes as Record<"rollouts" | "updates", "float32" | "bfloat16">;
const threadsUsed = threads();
trainer.dispose();
system.dispose();
const peakResidentBytes = process.resourceUsage().maxRSS * 1024;
// Afterwards, since it needs memory itself.
const reported = values.bound ? await withBounds(values.model, steps) : steps;
console.log(
  JSON.stringify({
    libtorch: engineInformation().libtorch,
    isa: engineInformation().isa,
    computeTypes: types,
    threads: threadsUsed,
    dtype: values.dtype,
    loadSeconds,
    steps: reported,
    liveTensors: live,
    peakResidentBytes,
  }),
);
