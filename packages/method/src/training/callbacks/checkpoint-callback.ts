import { join } from "node:path";
import { distributed, emptyCache } from "@astra-rl/torch";
import { UsageError, writeFileAtomic } from "@astra-rl/base";
import type { Conversation, Message } from "@astra-rl/lm";
import {
  EVALUATION_VERSION,
  stringifyMetrics,
  JOURNALS,
  readResumableState,
  type MetricsRecord,
  type RunDirectory,
  type RunSettings,
} from "@astra-rl/records";
import type { TokenTeller } from "../../system/index.js";
import { stringifyGraph, type Node } from "../../tree/index.js";
import {
  computeTypesOf,
  restoreTester,
  type Experience,
  type HFASTConfiguration,
  type Trainer,
} from "../index.js";
import { loadOptimizer, saveCheckpoint, saveState } from "../trainer-state.js";
import type { TrainingCallback, TrainingControl } from "./callbacks.js";
import type { TrainingEvaluation } from "./evaluation-callback.js";

/** With `checkpointEvery: auto`, the minimum time between checkpoints, in multiples of the time to write one. */
const AUTO_SHARE = 20;

/**
 * Writes metrics.jsonl, graphs.jsonl, evaluations.jsonl and checkpoints to the run directory, and restores a trainer
 * from them; among several processes, rank 0 writes. The three files are appended to before a checkpoint is written. The checkpoint records their lengths and
 * digests, so that a resumed run can truncate them, and detects changed lines.
 */
export class CheckpointCallback<S = Conversation, A = Message> implements TrainingCallback<S, A> {
  readonly name = "checkpoints";
  #savedStep = 0;
  /** Lines of the current step, not yet written. */
  #graphLines: string[] = [];
  #evaluationLines: string[] = [];
  /** When the last checkpoint was written and how long that took, in milliseconds; null before the first. */
  #lastWrite: { at: number; took: number } | null = null;

  /** @param tokens source of the token ids written with the graphs; null omits them */
  constructor(
    private readonly trainer: Trainer<S, A>,
    private readonly configuration: HFASTConfiguration,
    private readonly directory: RunDirectory,
    private readonly settings: RunSettings,
    private readonly tokens: TokenTeller<S, A> | null,
  ) {}

  onExperience({ graphs, credits }: Experience<S, A, unknown>, { step }: TrainingControl): void {
    if (!this.configuration.keepGraphs || distributed.rank() > 0) return;
    const { tokens } = this;
    const tokensOf = tokens === null ? undefined : (node: Node<S, A>) => tokens.tokensOf(node);
    // Serialized before the updates, because an algorithm may modify nodes.
    this.#graphLines = graphs.map((graph, index) =>
      stringifyGraph(graph, { step: step + 1, tokensOf, credit: credits[index]! }),
    );
  }

  /** Writes `checkpoints/best` if the evaluation is the best so far; its line is written at the end of the step. */
  async addEvaluation({ step, isBest, summary, details, ...rest }: TrainingEvaluation): Promise<void> {
    const line = { step, summary, details, ...rest };
    this.#evaluationLines = [JSON.stringify(line)];
    if (!isBest || distributed.rank() > 0) return;
    await this.directory.writeCheckpoint("best", async (folder) => {
      await saveCheckpoint(this.trainer.system, folder);
      const text = `${JSON.stringify({ step, summary, version: EVALUATION_VERSION }, null, 2)}\n`;
      writeFileAtomic(join(folder, "evaluation.json"), [text]);
    });
  }

  async onStep(record: MetricsRecord, control: TrainingControl): Promise<void> {
    if (distributed.rank() === 0) {
      this.directory.check();
      this.directory.graphs.append(this.#graphLines);
      this.directory.evaluations.append(this.#evaluationLines);
      this.directory.metrics.append([stringifyMetrics(record)]);
    }
    this.#graphLines = [];
    this.#evaluationLines = [];
    // It may depend on the clock.
    if (await distributed.fromRankZero(this.#isDue(control))) await this.#save(control);
  }

  async onTrainEnd(control: TrainingControl): Promise<void> {
    if (this.#savedStep < control.step) await this.#save(control);
  }

  /** Restores the trainer and the run's files from the last checkpoint. Checks everything before changing anything. */
  async restore(): Promise<void> {
    const { directory, trainer } = this;
    const folder = directory.checkpointPath("last");
    const state = readResumableState(folder, this.settings);
    this.#checkTypes(folder, state.computeTypes);
    // A run that no longer keeps graphs can resume after the large file was deleted.
    const names = JOURNALS.filter(
      (name) =>
        name !== "graphs" ||
        this.configuration.keepGraphs ||
        directory.graphs.bytes >= state.journals.graphs.bytes,
    );
    if (distributed.rank() === 0) {
      for (const name of names) directory[name].checkCut(state.journals[name]);
      for (const name of names) directory[name].cut(state.journals[name]);
    }
    await restoreTester(trainer.system, folder);
    loadOptimizer(folder, state.optimizer, trainer.optimizer);
    trainer.setState(state);
    this.#savedStep = state.step;
  }

  #isDue(control: TrainingControl): boolean {
    const { checkpointEvery } = this.configuration;
    if (checkpointEvery !== "auto") return checkpointEvery > 0 && control.step % checkpointEvery === 0;
    if (this.#lastWrite === null) return true;
    return control.clock() - this.#lastWrite.at >= AUTO_SHARE * this.#lastWrite.took;
  }

  async #save(control: TrainingControl): Promise<void> {
    const start = control.clock();
    const { directory, trainer } = this;
    const types = computeTypesOf(trainer.system);
    if (distributed.rank() === 0) {
      await directory.writeLast(this.configuration.keepCheckpoints, this.#savedStep, (folder) =>
        saveCheckpoint(trainer.system, folder, (stateFolder, digests) => {
          const { metrics, graphs, evaluations } = directory;
          const state = {
            ...trainer.getState(),
            journals: {
              metrics: metrics.state(),
              graphs: graphs.state(),
              evaluations: evaluations.state(),
            },
            run: this.settings.record,
            ...(types === null ? {} : { computeTypes: { ...types } }),
          };
          saveState(stateFolder, state, trainer.optimizer.stateDict(), digests);
        }),
      );
    }
    // Writing fragments the memory cache: without this, memory grows by a few percent per hundred steps.
    emptyCache();
    this.#savedStep = control.step;
    const end = control.clock();
    this.#lastWrite = { at: end, took: end - start };
    if (distributed.rank() > 0) return;
    await trainer.callbacks.call("onCheckpoint", control, directory.checkpointPath("last"));
  }

  #checkTypes(folder: string, saved: Readonly<Record<string, string>> = {}): void {
    const current = computeTypesOf(this.trainer.system);
    for (const [name, then] of Object.entries(current === null ? {} : saved)) {
      if (current![name] === then) continue;
      throw new UsageError(
        "changed-settings",
        `${folder}: a run must be resumed with its original number formats, but ${name} used ${then} and ` +
          `would now use ` +
          `${current![name] ?? "nothing"}; set that format (dtype for rollouts, updateDtype for updates), or ` +
          `start a new run ` +
          `from these weights`,
      );
    }
  }
}
