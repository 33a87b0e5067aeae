import { Command } from "@commander-js/extra-typings";
import { view } from "@astra-rl/report/view";
import { quietOption, wholeNumber, createOutput, type Streams } from "@astra-rl/assembly/program";

/** `astra-rl view [DIR]`: a page over run folders, live while they are trained. */
export function viewCommand(streams: Streams) {
  return new Command("view")
    .description("Show runs in a browser, live during training: curves, trees, conversations, text search")
    .argument("[folder]", "a run folder, or a folder with run folders", "runs")
    .option("--port <n>", "port on this machine; 0 chooses a free port", wholeNumber(0, 65_535), 8321)
    .addOption(quietOption())
    .action(async (folder, { port, quiet }) => {
      const output = createOutput(streams, { quiet });
      const running = await view(folder, { port });
      output.result(running.url);
      output.note("Open it in a browser on this machine; Ctrl-C stops it.");
      // The event loop is never blocked, so plain handlers suffice; the native ones would load libtorch.
      await new Promise<unknown>((done) => {
        process.once("SIGINT", done);
        process.once("SIGTERM", done);
      });
      await running.stop();
    });
}
