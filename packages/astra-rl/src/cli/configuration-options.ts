import { Option } from "@commander-js/extra-typings";
import type { DownloadProgress, HubOptions } from "@astra-rl/lm";
import { collectOverride } from "./options.js";
import type { Output } from "./output.js";

/** `--set a.b=c`, as often as wanted. */
export const setOption = () =>
  new Option(
    "--set <key=value>",
    "replace a value of the configuration, such as training.learningRate=1e-5; repeatable",
  ).argParser(collectOverride);

/** Tells the user what is being fetched from the hub. */
export function downloadNotes(output: Output): HubOptions {
  return {
    onProgress: (progress: DownloadProgress) => output.live(describe(progress)),
    onWarning: (sentence) => output.alert(sentence),
  };
}

const describe = ({ file, received, total }: DownloadProgress) =>
  `fetching ${file}: ${(received / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB`;
