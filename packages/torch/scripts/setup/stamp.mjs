import { closeSync, mkdirSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/**
 * Record of the last set-up: a key for each step. It is in a folder that git ignores; without it every step is checked
 * again, which only costs time.
 */
export class Stamp {
  #path;
  #content;

  constructor(folder) {
    this.#path = join(folder, "setup.json");
    try {
      this.#content = JSON.parse(readFileSync(this.#path, "utf8"));
    } catch {
      this.#content = {};
    }
  }

  get(step) {
    return this.#content[step];
  }

  /** Written after each step, so that a failing step does not cause earlier ones to be repeated. */
  set(step, key) {
    this.#content[step] = key;
    mkdirSync(dirname(this.#path), { recursive: true });
    writeFileSync(`${this.#path}.${process.pid}`, `${JSON.stringify(this.#content, null, 2)}\n`);
    renameSync(`${this.#path}.${process.pid}`, this.#path);
  }
}

const sleep = (milliseconds) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);

function isAlive(processId) {
  try {
    process.kill(processId, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

/**
 * Takes the lock that keeps two set-ups of one checkout apart (`npm test` and `npm run demo`), waiting for its
 * holder. The lock of a process that has exited is taken over.
 *
 * @param {string} folder
 * @param {(line: string) => void} say
 * @returns {() => void} releases it
 */
export function takeLock(folder, say) {
  const path = join(folder, "setup.lock");
  mkdirSync(folder, { recursive: true });
  let told = false;
  for (;;) {
    try {
      const handle = openSync(path, "wx");
      writeFileSync(handle, String(process.pid));
      closeSync(handle);
      return () => rmSync(path, { force: true });
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    }
    let holder = "";
    try {
      holder = readFileSync(path, "utf8");
    } catch {
      continue;
    }
    if (holder !== "" && !isAlive(Number(holder))) {
      rmSync(path, { force: true });
      continue;
    }
    if (!told) say(`waiting for another set-up of this folder (process ${holder})`);
    told = true;
    sleep(200);
  }
}
