import type { Role } from "@astra-rl/method";
import { isSection, placesOf, type Place } from "./json-schema.js";
import { DEFAULT_TYPES, KIND_SECTIONS } from "./registry.js";
import { DEFAULT_PRESET } from "./schema.js";

/** A section that selects a kind, as given in the file or on the command line. */
export interface KindPlace {
  path: Place["path"];
  role: Role;
  section: Record<string, unknown>;
}

/**
 * Every section that selects a kind, outer before nested. Fills in a missing `type`, or preset of a reward, with the
 * default, and turns a target given only as an export into a section.
 */
export function kindPlaces(content: Record<string, unknown>): KindPlace[] {
  const own = (name: string) => (Object.hasOwn(content, name) ? content[name] : undefined);
  for (const name of KIND_SECTIONS) {
    const section = own(name);
    // null means that the choice is still open.
    if (isSection(section) && section["type"] === undefined) section["type"] = DEFAULT_TYPES[name];
  }
  const [reward, models] = [own("reward"), own("models")];
  if (isSection(reward) && reward["terms"] === undefined) reward["preset"] ??= DEFAULT_PRESET;
  if (isSection(models)) {
    const { target, otherTargets } = models;
    if (isExport(target)) models["target"] = { type: target };
    if (Array.isArray(otherTargets)) {
      models["otherTargets"] = otherTargets.map((each: unknown) => (isExport(each) ? { type: each } : each));
    }
  }
  return [...placesOf(content)].flatMap(({ path, value, schema: { kind } }) =>
    kind !== undefined && isSection(value) && !isCheckpoint(kind, value)
      ? [{ path, role: kind as Role, section: value }]
      : [],
  );
}

/** A target may be a checkpoint with how it reads conversations, which selects no kind. */
const isCheckpoint = (kind: string, section: Record<string, unknown>): boolean =>
  kind === "target" && section["path"] !== undefined && section["type"] === undefined;

/** Whether a model is an export of a module; folder names may contain "#", too. */
const isExport = (model: unknown): model is string =>
  typeof model === "string" && /#[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(model);
