import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { checkNewRunFolder } from "../../src/run/index.js";
import { temporaryFolder } from "../training/temporary-folder.js";

const folder = temporaryFolder();

it("does not bar the folder of a run that took no step, with what a refused logger left", () => {
  mkdirSync(join(folder, "tensorboard"));
  mkdirSync(join(folder, "checkpoints"));
  for (const name of ["config.resolved.yaml", "run.json", "wandb.json"])
    writeFileSync(join(folder, name), "");
  checkNewRunFolder(folder);
  writeFileSync(join(folder, "metrics.jsonl"), "{}\n");
  expect(() => checkNewRunFolder(folder)).toThrow("already contains files");
});
