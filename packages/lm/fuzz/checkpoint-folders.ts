import { mkdtempSync, readdirSync, rmSync, symlinkSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { liveTensors, noGrad, scope } from "@astra-rl/torch";
import { loadCausalLM, loadSequenceClassifier } from "../src/checkpoint.js";
import { tokenLogprobs } from "../src/logprobs.js";

const golden = fileURLToPath(new URL("../test/golden", import.meta.url));

/** Tiny valid checkpoints, by name. */
export const checkpoints: ReadonlyMap<string, string> = new Map([
  ["gpt2", join(golden, "gpt2")],
  ...["families", "published"].flatMap((group) =>
    readdirSync(join(golden, group)).map((name) => [name, join(golden, group, name)] as const),
  ),
]);

const contents = new Map<string, Buffer>();
export function contentOf(path: string): Buffer {
  let bytes = contents.get(path);
  if (bytes === undefined) contents.set(path, (bytes = readFileSync(path)));
  return bytes;
}

/** Calls `use` with a checkpoint folder that lacks the files `use` has to write; removes it afterwards. */
export async function inCopy(
  source: string,
  without: readonly string[],
  use: (folder: string) => Promise<void>,
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "fuzz-"));
  try {
    for (const name of readdirSync(source)) {
      if (!without.includes(name)) symlinkSync(join(source, name), join(folder, name));
    }
    await use(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Loads a checkpoint and, if it is valid, runs a few tokens through it. No tensor stays alive in any case. */
export async function loadAndRead(name: string, folder: string): Promise<void> {
  const before = liveTensors();
  const failed = await read(name, folder).then(
    () => null,
    (error: unknown) => ({ error }),
  );
  if (liveTensors() !== before) throw new Error(`${liveTensors() - before} tensors stay alive`);
  if (({} as Record<string, unknown>)["polluted"] !== undefined) throw new Error("a prototype was changed");
  if (failed !== null) throw failed.error;
}

async function read(name: string, folder: string): Promise<void> {
  if (/bert|original|unbiased|multilingual/.test(name)) {
    (await loadSequenceClassifier(folder)).model.dispose();
    return;
  }
  const { model } = await loadCausalLM(folder);
  try {
    if (model.config.contextLength < 4) return;
    const rows = [{ context: [1, 2], continuation: [3, 4] }];
    noGrad(() => scope(() => void tokenLogprobs(model, rows).toArray()));
  } finally {
    model.dispose();
  }
}
