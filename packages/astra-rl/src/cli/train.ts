import { join } from "node:path";
import { Command } from "@commander-js/extra-typings";
import { AstraError } from "@astra-rl/torch";
import { configurationSettings, readConfiguration } from "../configuration/index.js";
import {
  assembleSystem,
  assembleTrainer,
  defaultRunFolder,
  prepareRunFolder,
  recordSession,
  withComputeTypes,
  withRecordedTypes,
  writeResolvedConfiguration,
} from "../run/index.js";
import { checkResumable } from "../training/index.js";
import { downloadNotes, setOption } from "./configuration-options.js";
import { stopOnInterrupt } from "./interruption.js";
import { createOutput, type Streams } from "./output.js";
import { TrainingProgress } from "./training-progress.js";

/** `astra-rl train CONFIG`: trains the tester and leaves a run folder. */
export function trainCommand(streams: Streams) {
  return new Command("train")
    .description(
      "Train the tester; leaves metrics, checkpoints and the resolved configuration in a run folder",
    )
    .argument("<config>", "configuration file")
    .option("--run-dir <folder>", "where to keep the run (default: runs/<config>-<time>)")
    .option("--resume", "go on with the run in --run-dir", false)
    .addOption(setOption())
    .option("--json", "print each step's metrics line on standard output", false)
    .option("--quiet", "results and errors only", false)
    .action(async (config, { runDir, resume, set, json, quiet }) => {
      const output = createOutput(streams, { quiet });
      const given = await readConfiguration(config, { overrides: set ?? [] });
      const folder = runDir ?? defaultRunFolder(config);
      const wanted = resume ? withRecordedTypes(given, folder) : given;
      if (resume) checkResumable(folder, configurationSettings(wanted));
      const system = await assembleSystem(wanted, downloadNotes(output));
      try {
        const configuration = withComputeTypes(wanted, system.computeTypes);
        const { trainingSteps } = configuration.training;
        const interruption = stopOnInterrupt(output);
        const progress = new TrainingProgress(output, trainingSteps);
        const trainer = await assembleTrainer(configuration, system, {
          runDirectory: folder,
          resume,
          signal: interruption.signal,
          logger: { info: (line) => output.note(line), warn: (line) => output.alert(line) },
          onStep: (record) => {
            progress.step(record);
            if (json) output.json(record);
          },
          onProgress: (event) => progress.phase(event),
        });
        try {
          prepareRunFolder(folder, configuration, { resume });
          await recordSession(folder, configuration, { resume });
          await trainer.train();
          // A resumed run may have been given more steps, for example; what was refused is not written down.
          if (resume) writeResolvedConfiguration(folder, configuration);
        } finally {
          interruption.end();
          trainer.dispose();
        }
        progress.end();
        if (interruption.signal.aborted && trainer.step < trainingSteps) {
          throw new AstraError(
            `train: stopped after step ${trainer.step} of ${trainingSteps}; go on with --run-dir ${folder} --resume`,
          );
        }
        output.note(`Run folder: ${folder}`);
        output.note(`  ${join(folder, "metrics.jsonl")}: a line for each step`);
        output.note(
          `  ${join(folder, "checkpoints/best")}, ${join(folder, "checkpoints/last")}: the tester, in Hugging Face format`,
        );
        output.note(
          `Evaluate it: astra-rl eval ${join(folder, "config.resolved.yaml")} --tester ${join(folder, "checkpoints/best")}`,
        );
      } finally {
        system.dispose();
      }
    });
}
