import { UsageError } from "@astra-rl/torch";
import type { Role } from "../kinds/index.js";
import { sectionsOf } from "./json-schema.js";
import { DEFAULT_TYPES, findKind, KIND_SECTIONS } from "./registry.js";
import { DEFAULT_PRESET } from "./schema.js";
import { isModuleReference, loadUserModule, looksLikeFile, type UserModule } from "./user-module.js";

/** A place of a configuration where a kind is chosen, as the file and the command line gave it. */
export interface KindPlace {
  path: readonly (string | number)[];
  role: Role;
  section: Record<string, unknown>;
}

/**
 * Every section that chooses a kind and is there, those inside others behind them. One that leaves `type` out, or a reward its
 * preset, is given its default; a target that is named by an export alone becomes a section.
 */
export function kindPlaces(content: Record<string, unknown>): KindPlace[] {
  const isSection = (value: unknown): value is Record<string, unknown> =>
    typeof value === "object" && value !== null && !Array.isArray(value);
  for (const name of KIND_SECTIONS) {
    const section = Object.hasOwn(content, name) ? content[name] : undefined;
    if (!isSection(section)) continue;
    // Not where it stands there empty: that is a choice still to be made.
    if (section["type"] === undefined) section["type"] = DEFAULT_TYPES[name];
  }
  const reward = Object.hasOwn(content, "reward") ? content["reward"] : undefined;
  if (isSection(reward) && reward["terms"] === undefined) reward["preset"] ??= DEFAULT_PRESET;
  const models = Object.hasOwn(content, "models") ? content["models"] : undefined;
  if (isSection(models)) {
    const { target, otherTargets } = models;
    if (isExport(target)) models["target"] = { type: target };
    if (Array.isArray(otherTargets)) {
      models["otherTargets"] = otherTargets.map((each: unknown) => (isExport(each) ? { type: each } : each));
    }
  }
  return [...sectionsOf(content)] as KindPlace[];
}

/** Whether a model is named as an export of a module; the names of folders may hold a "#", too. */
const isExport = (model: unknown): model is string =>
  typeof model === "string" && /#[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(model);

/**
 * Imports the module that a place names, if it names one.
 *
 * @param base the folder that its `type` is relative to
 * @returns null for a kind of the package, or for something that is no text at all
 * @throws UsageError, see `loadUserModule`
 */
export async function moduleAt({ role, section }: KindPlace, base: string): Promise<UserModule | null> {
  const { type } = section;
  if (typeof type !== "string" || findKind(role, type) !== null) return null;
  if (isModuleReference(type)) return loadUserModule(role, type, base);
  if (looksLikeFile(type)) {
    throw new UsageError(
      `must name an export of the file, such as ${type}#name, got ${JSON.stringify(type)}`,
    );
  }
  return null;
}
