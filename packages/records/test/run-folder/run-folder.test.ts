import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import { checkNewRunFolder } from "../../src/run-folder/index.js";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";

const folder = temporaryFolder();

it("does not block the folder of a run without steps, with the files of a refused logger", () => {
  mkdirSync(join(folder, "tensorboard"));
  mkdirSync(join(folder, "checkpoints"));
  for (const name of ["config.resolved.yaml", "run.json", "wandb.json"])
    writeFileSync(join(folder, name), "");
  checkNewRunFolder(folder);
  writeFileSync(join(folder, "metrics.jsonl"), "{}\n");
  expect(() => checkNewRunFolder(folder)).toThrow(breaking("folder-occupied"));
});
