import { statSync } from "node:fs";
import { fileDigest, dotted } from "@astra-rl/base";
import { wasAndIs, type RunSettings } from "@astra-rl/records";
import { EMBEDDED, isModuleReference, moduleParts, type Configuration } from "../configuration/index.js";
import { leavesOf, type Place } from "../configuration/json-schema.js";

/** What a checkpoint stores about its run. */
interface RunRecord {
  /** The resolved configuration. */
  configuration: Record<string, unknown>;
  /** SHA-256 of each relevant file, by its dotted key. */
  files: Record<string, string>;
  /** Names of the parts of a program that no section names, by role. */
  program: Record<string, string>;
}

/**
 * What must not change when a run is resumed: every key that the schema does not mark as free, the content of input
 * files, and the modules named by `type:`.
 *
 * @param program names of a program's parts that no section names, by role
 */
export function configurationSettings(
  configuration: Configuration,
  program: Readonly<Record<string, string>> = {},
): RunSettings {
  // Round trip through JSON, like the saved one.
  const plain = JSON.parse(JSON.stringify(configuration)) as Record<string, unknown>;
  const now: RunRecord = { configuration: plain, files: contentHashes(plain), program };
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
      // Reading a device may never end.
      if (statSync(value).isFile()) hashes[dotted(path)] = fileDigest(value);
    } catch {
      // The error is reported when the file is read later.
    }
  }
  return hashes;
}

function changesBetween(then: Partial<RunRecord>, now: RunRecord): string[] {
  const [before, after] = [then, now].map(
    ({ configuration = {} }) =>
      new Map([...leavesOf(configuration)].map((leaf) => [dotted(leaf.path), leaf])),
  ) as [Map<string, Place>, Map<string, Place>];
  const parts = new Set([...Object.keys(then.program ?? {}), ...Object.keys(now.program)]);
  const others = [...parts].flatMap((role) => {
    const [was, is] = [then.program?.[role], now.program[role]];
    return was === is ? [] : [`${role} ${wasAndIs(was, is)}`];
  });
  const keys = [...new Set([...after.keys(), ...before.keys()])].flatMap((key) => {
    const [old, current] = [before.get(key), after.get(key)];
    if ((current ?? old)!.schema.resume === "free") return [];
    const [was, is] = [old, current].map((leaf) =>
      leaf === undefined ? undefined : JSON.stringify(leaf.value),
    );
    const [oldHash, hash] = [contentOf(key, old, then), contentOf(key, current, now)];
    if (oldHash !== undefined && hash !== undefined) {
      // Only the content matters, not the name.
      if (oldHash === hash) return [];
      if (was === is) return [`${key}: ${is} has different content (SHA-256 ${wasAndIs(oldHash, hash)})`];
    }
    return was === is ? [] : [`${key} ${wasAndIs(was, is)}`];
  });
  return [...keys, ...others];
}

/** Identity of a file's content: its SHA-256; for a module, also the export. */
function contentOf(
  key: string,
  leaf: Place | undefined,
  { files, configuration }: Partial<RunRecord>,
): string | undefined {
  if (leaf?.path.at(-1) !== "type" || typeof leaf.value !== "string" || !isModuleReference(leaf.value)) {
    return files?.[key];
  }
  const { module, name } = moduleParts(leaf.value);
  const modules = configuration?.["modules"] as Record<string, string> | undefined;
  const hash = modules?.[module];
  return hash === undefined ? undefined : `${hash}#${name}`;
}
