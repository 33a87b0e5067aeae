import { statSync } from "node:fs";
import { fileDigest } from "@astra-rl/torch";
import { dotted } from "../options/index.js";
import { wasAndIs, type RunSettings } from "../run/index.js";
import { leavesOf, type Place } from "./json-schema.js";
import { EMBEDDED, type Configuration } from "./schema.js";
import { isModuleReference } from "./user-module.js";

/** What a checkpoint keeps of the run that it belongs to. */
interface RunRecord {
  /** The whole of it, resolved. */
  configuration: Record<string, unknown>;
  /** SHA-256 of each file whose content matters, by the dotted key that names it. */
  files: Record<string, string>;
}

/**
 * What a configuration's run must still be when it is resumed: every key but those that the schema marks as free, the
 * content of the files that it reads, and the modules that `type:` names.
 */
export function configurationSettings(configuration: Configuration): RunSettings {
  // Through JSON, as the kept one went.
  const plain = JSON.parse(JSON.stringify(configuration)) as Record<string, unknown>;
  const now: RunRecord = { configuration: plain, files: contentHashes(plain) };
  return {
    record: now as unknown as RunSettings["record"],
    changes: (record) => changesBetween(record as unknown as RunRecord, now),
  };
}

function contentHashes(configuration: Record<string, unknown>): Record<string, string> {
  const hashes: Record<string, string> = {};
  for (const { path, value, schema } of leavesOf(configuration)) {
    if (schema.resume !== "content" || typeof value !== "string" || value === EMBEDDED) continue;
    try {
      // Devices may never end.
      if (statSync(value).isFile()) hashes[dotted(path)] = fileDigest(value);
    } catch {
      // Reading the file later reports what is wrong with it.
    }
  }
  return hashes;
}

function changesBetween(then: Partial<RunRecord>, now: RunRecord): string[] {
  const [before, after] = [then, now].map(
    ({ configuration = {} }) =>
      new Map([...leavesOf(configuration)].map((leaf) => [dotted(leaf.path), leaf])),
  ) as [Map<string, Place>, Map<string, Place>];
  return [...new Set([...after.keys(), ...before.keys()])].flatMap((key) => {
    const [old, current] = [before.get(key), after.get(key)];
    if ((current ?? old)!.schema.resume === "free") return [];
    const [was, is] = [old, current].map((leaf) =>
      leaf === undefined ? undefined : JSON.stringify(leaf.value),
    );
    const [oldHash, hash] = [contentOf(key, old, then), contentOf(key, current, now)];
    if (oldHash !== undefined && hash !== undefined) {
      // The same content under another name is the same; the same name with another content is not.
      if (oldHash === hash) return [];
      if (was === is) return [`${key}: ${is} holds something else (SHA-256 ${wasAndIs(oldHash, hash)})`];
    }
    return was === is ? [] : [`${key} ${wasAndIs(was, is)}`];
  });
}

/** What identifies the content of a file that a value names: its SHA-256; for a module, the export as well. */
function contentOf(
  key: string,
  leaf: Place | undefined,
  { files, configuration }: Partial<RunRecord>,
): string | undefined {
  if (leaf?.path.at(-1) !== "type" || typeof leaf.value !== "string" || !isModuleReference(leaf.value)) {
    return files?.[key];
  }
  const at = leaf.value.lastIndexOf("#");
  const modules = configuration?.["modules"] as Record<string, string> | undefined;
  const hash = modules?.[leaf.value.slice(0, at)];
  return hash === undefined ? undefined : `${hash}${leaf.value.slice(at)}`;
}
