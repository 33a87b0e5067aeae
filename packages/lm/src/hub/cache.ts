import { randomBytes } from "node:crypto";
import { existsSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { copyFile, mkdir, rename, symlink, unlink } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join, relative, sep } from "node:path";
import { UsageError, writeFileAtomic } from "@astra-rl/torch";

/**
 * The hub's standard cache layout, shared with the Python libraries:
 *
 *     <root>/models--<owner>--<name>/refs/<revision>            text: a commit
 *     <root>/models--<owner>--<name>/blobs/<etag>               content
 *     <root>/models--<owner>--<name>/snapshots/<commit>/<file>  → ../../blobs/<etag>
 */
export class HubCache {
  readonly folder: string;

  constructor(
    readonly root: string,
    readonly modelId: string,
  ) {
    this.folder = join(root, `models--${modelId.split("/").join("--")}`);
  }

  blob(etag: string): string {
    return join(this.folder, "blobs", etag);
  }

  snapshot(commit: string): string {
    return join(this.folder, "snapshots", commit);
  }

  /** The commit that a revision pointed to when it was last resolved, or null when it never was. */
  readReference(revision: string): string | null {
    if (isCommit(revision)) return existsSync(this.snapshot(revision)) ? revision : null;
    const path = join(this.folder, "refs", ...revision.split("/"));
    if (!existsSync(path)) return null;
    const commit = readFileSync(path, "utf8").trim();
    return isCommit(commit) ? commit : null;
  }

  async writeReference(revision: string, commit: string): Promise<void> {
    if (isCommit(revision)) return;
    const path = join(this.folder, "refs", ...revision.split("/"));
    await mkdir(dirname(path), { recursive: true });
    writeFileAtomic(path, [commit]);
  }

  /** True when the snapshot has this file and the blob behind it is there. */
  has(commit: string, file: string): boolean {
    // existsSync follows the link: a link to a removed blob counts as missing.
    return existsSync(join(this.snapshot(commit), file));
  }

  /** Points `snapshots/<commit>/<file>` at the blob; a relative link, so that the cache can be moved. */
  async link(commit: string, file: string, etag: string): Promise<void> {
    const path = join(this.snapshot(commit), file);
    await mkdir(dirname(path), { recursive: true });
    const destination = relative(dirname(path), this.blob(etag));
    try {
      if (readlinkSync(path) === destination) return;
      await unlink(path);
    } catch {
      // Not there, or not a link: created (or replaced) below.
    }
    const temporary = `${path}.${process.pid}-${randomBytes(4).toString("hex")}`;
    try {
      await symlink(destination, temporary);
    } catch {
      // File systems without links: the Python libraries copy there, too.
      await copyFile(this.blob(etag), temporary);
    }
    await rename(temporary, path);
  }
}

/** `$HF_HUB_CACHE`, else `$HF_HOME/hub`, else `$XDG_CACHE_HOME/huggingface/hub`, else `~/.cache/huggingface/hub`. */
export function hubCacheRoot(environment: NodeJS.ProcessEnv = process.env): string {
  return environment["HF_HUB_CACHE"] || join(hubHome(environment), "hub");
}

export function hubHome(environment: NodeJS.ProcessEnv): string {
  return (
    environment["HF_HOME"] || join(environment["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "huggingface")
  );
}

export function isCommit(revision: string): boolean {
  return /^[0-9a-f]{40}$/.test(revision);
}

/** Server answers name files: none may leave the snapshot's folder. */
export function checkRelativePath(modelId: string, file: string): void {
  const parts = file.split("/");
  const bad =
    file === "" ||
    file.includes("\0") ||
    file.includes("\\") ||
    (sep !== "/" && file.includes(sep)) ||
    parts.some((part) => part === "" || part === "." || part === "..");
  if (bad) {
    throw new UsageError(
      `hub: model "${modelId}" lists a file that would lie outside its folder: ${JSON.stringify(file)}; ` +
        `do not use this repository`,
    );
  }
}

/** Bytes of a file, or 0 when it is not there. */
export function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
