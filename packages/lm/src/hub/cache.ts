import { randomBytes } from "node:crypto";
import { existsSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { copyFile, mkdir, realpath, rename, symlink, unlink } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, dirname, join, relative, sep } from "node:path";
import { UsageError, writeFileAtomic } from "@astra-rl/base";

/** A repository of the hub. */
export interface Repository {
  kind: "model" | "dataset";
  /** "owner/name", or "name". */
  id: string;
}

export interface RepositoryFile {
  /** Path in the repository, with "/" as separator. */
  path: string;
  /** Bytes. */
  size: number;
  /** Name of the blob in the cache: SHA-256 of large files, git's SHA-1 of small ones. */
  etag: string;
}

/** Name for messages: model "owner/name". */
export const titleOf = ({ kind, id }: Repository): string => `${kind} "${id}"`;

/**
 * The hub's standard cache layout, shared with the Python libraries:
 *
 *     <root>/models--<owner>--<name>/refs/<revision>            text: a commit (datasets--… for a dataset)
 *     <root>/models--<owner>--<name>/blobs/<etag>               content
 *     <root>/models--<owner>--<name>/snapshots/<commit>/<file>  → ../../blobs/<etag>
 */
export class HubCache {
  readonly folder: string;

  constructor(
    readonly root: string,
    readonly repository: Repository,
  ) {
    this.folder = join(root, `${repository.kind}s--${repository.id.split("/").join("--")}`);
  }

  blob(etag: string): string {
    return join(this.folder, "blobs", etag);
  }

  snapshot(commit: string): string {
    return join(this.folder, "snapshots", commit);
  }

  /** The commit that a revision pointed to when last resolved; null if it never was. */
  readReference(revision: string): string | null {
    if (isCommit(revision)) return existsSync(this.snapshot(revision)) ? revision : null;
    const path = join(this.folder, "refs", ...revision.split("/"));
    // A folder: contains other revisions, but this name itself was never resolved.
    if (!statSync(path, { throwIfNoEntry: false })?.isFile()) return null;
    const commit = readFileSync(path, "utf8").trim();
    return isCommit(commit) ? commit : null;
  }

  async writeReference(revision: string, commit: string): Promise<void> {
    if (isCommit(revision)) return;
    const path = join(this.folder, "refs", ...revision.split("/"));
    await mkdir(dirname(path), { recursive: true });
    writeFileAtomic(path, [commit]);
  }

  /** True if the snapshot contains this file and its blob exists. */
  has(commit: string, file: string): boolean {
    // existsSync follows the link: a link to a removed blob counts as missing.
    return existsSync(join(this.snapshot(commit), file));
  }

  /** Points `snapshots/<commit>/<file>` at the blob; a relative link, so that the cache can be moved. */
  async link(commit: string, file: string, etag: string): Promise<void> {
    const path = join(this.snapshot(commit), file);
    await mkdir(dirname(path), { recursive: true });
    await this.#checkInside(dirname(path), file);
    const destination = relative(dirname(path), this.blob(etag));
    try {
      if (readlinkSync(path) === destination) return;
      await unlink(path);
    } catch {
      // Missing, or not a link: created (or replaced) below.
    }
    // Not derived from the file's name: adding to a long name could exceed the limit.
    const temporary = join(dirname(path), `.${process.pid}-${randomBytes(4).toString("hex")}`);
    try {
      await symlink(destination, temporary);
    } catch {
      // On file systems without links, the Python libraries copy too.
      await copyFile(this.blob(etag), temporary);
    }
    await rename(temporary, path);
  }

  /** A folder in the snapshot may have been replaced by a link to elsewhere; nothing may be written through it. */
  async #checkInside(folder: string, file: string): Promise<void> {
    const [found, root] = await Promise.all([realpath(folder), realpath(this.folder)]);
    if (found === root || found.startsWith(root + sep)) return;
    throw new UsageError(
      "outside-cache",
      `hub: ${titleOf(this.repository)}: ${JSON.stringify(file)} would be written to ${found}, outside the cache: a folder ` +
        `in its path is a link; remove ${this.folder} and try again`,
    );
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

/** Whether a path with "/" as separator stays within its folder and has one spelling. */
export const isPlainPath = (path: string): boolean =>
  path.split("/").every((part) => part !== "" && part !== "." && part !== "..");

/** File names come from the server: each must be a normalized path within the snapshot's folder. */
export function checkRelativePath(repository: Repository, file: string): void {
  const bad =
    !isPlainPath(file) || file.includes("\0") || file.includes("\\") || (sep !== "/" && file.includes(sep));
  if (bad) {
    throw new UsageError(
      "path-outside-folder",
      `hub: ${titleOf(repository)} lists a file that would be outside its folder: ${JSON.stringify(file)}; ` +
        `do not use this repository`,
    );
  }
}

/**
 * Refuses files that cannot coexist: one is a folder of another, or, if the file system ignores case, two differ only
 * in case.
 */
export function checkDistinctPaths(
  repository: Repository,
  files: readonly string[],
  options: { ignoreCase: boolean },
): void {
  const spelled = (path: string) => (options.ignoreCase ? path.toLowerCase() : path);
  const clash = (first: string, second: string, rule: string) =>
    new UsageError(
      "conflicting-paths",
      `hub: ${titleOf(repository)} lists files that cannot be in one folder: ${JSON.stringify(first)} and ` +
        `${JSON.stringify(second)}: ${rule}; do not use this repository`,
    );
  const seen = new Map<string, string>();
  for (const file of files) {
    const twin = seen.get(spelled(file));
    if (twin !== undefined) throw clash(twin, file, "on this file system their names are equal");
    seen.set(spelled(file), file);
  }
  for (const file of files) {
    const parts = file.split("/");
    for (let length = 1; length < parts.length; length++) {
      const folder = seen.get(spelled(parts.slice(0, length).join("/")));
      if (folder !== undefined) throw clash(folder, file, "the first would be a folder of the second");
    }
  }
}

/** Whether this folder's file system ignores case. */
export function ignoresCase(folder: string): boolean {
  const found = statSync(folder, { throwIfNoEntry: false });
  const swapped = join(dirname(folder), basename(folder).toUpperCase());
  const other = statSync(swapped, { throwIfNoEntry: false });
  return found !== undefined && other !== undefined && found.ino === other.ino && swapped !== folder;
}

/** Size of a file in bytes, or 0 if it does not exist. */
export function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
