import { z } from "zod";
import { closest, keysMessage, oneOf } from "@astra-rl/base";
import type { KindSection, Role, Sections } from "@astra-rl/method";
import { DEFAULT_CACHE_SIZE } from "@astra-rl/scorers";
import { kindsOf } from "./registry.js";
import { MODULE_ROLES } from "./user-kind.js";

/**
 * What a resumed run may change, for keys that are not fixed. "free": any value; "content": the path of a file with
 * the same content.
 */
export const FREE = { resume: "free" };
export const SAME_CONTENT = { resume: "content", path: "file" };

/** Module exports used as types of each role; a module validates its own options. */
export type ModuleTypes = Partial<Record<Role, readonly string[]>>;

/** What a type may be besides the names of the package's kinds. */
export const MODULE_EXPORT = "an export of a module such as ./file.js#name";

/** Options of every reward term. */
const TERM_SHAPE = {
  weight: z.number().describe("Factor of the term's value"),
  optional: z
    .boolean()
    .default(false)
    .describe("If this term has no value for a turn, use the sum of the others instead of failing the turn"),
};

const scoreCache = z.strictObject({
  file: z
    .string()
    .min(1)
    .optional()
    .meta({ ...FREE, path: "output" })
    .describe(
      "JSON Lines file from which scores are read and to which they are added; several runs may share it. " +
        "Default: none",
    ),
  size: z
    .int()
    .min(1)
    .default(DEFAULT_CACHE_SIZE)
    .meta(FREE)
    .describe("Maximum number of scores in memory; the oldest are dropped first"),
});

/** Options of a scorer's cache. */
export type ScoreCache = z.output<typeof scoreCache>;

/** Default timeout of a call to a custom scorer, in seconds. */
export const MODULE_DEADLINE = 600;
/** The maximum that a timer accepts. */
const MOST_SECONDS = 2_000_000;

/** Options of every scorer. */
const SCORER_SHAPE = {
  deadline: z
    .number()
    .positive()
    .max(MOST_SECONDS)
    .optional()
    .meta(FREE)
    .describe(
      `Timeout of a call in seconds; a call that times out is not retried. Default: ${MODULE_DEADLINE} ` +
        "for a custom scorer, which may query a server; no limit for the built-in ones, which compute locally",
    ),
  cache: scoreCache.optional().describe("Cache scores, so that no text is scored twice. Default: no cache"),
};

/** Options of every kind of a role, including modules, that are not passed to its factory. */
export const COMMON_SHAPES: Partial<Record<Role, z.ZodRawShape>> = { term: TERM_SHAPE, scorer: SCORER_SHAPE };

/**
 * The schema of a role's section: one alternative per kind and per module.
 *
 * @param modules null: none may be named here, although the role has some
 */
export function kindSchema(role: Role, modules: ModuleTypes | null): z.ZodType<KindSection, KindSection> {
  return unionOf(role, modules, nestedSections(modules ?? {})).meta({ kind: role });
}

/** The schemas of sections within others. */
export function nestedSections(modules: ModuleTypes): Sections {
  // Lazy, because scorers may contain scorers recursively.
  let scorer: z.ZodType<KindSection, KindSection> | undefined;
  const sections: Sections = {
    scorer: z.lazy(() => (scorer ??= unionOf("scorer", modules, sections))).meta({ kind: "scorer" }),
  };
  return sections;
}

function unionOf(
  role: Role,
  modules: ModuleTypes | null,
  sections: Sections,
): z.ZodType<KindSection, KindSection> {
  const common = COMMON_SHAPES[role] ?? {};
  const kinds = kindsOf(role).map(({ name, summary, schema }) => {
    const options = typeof schema === "function" ? schema(sections) : schema;
    const shape = { type: z.literal(name).describe(summary), ...common, ...options.shape };
    return { name, shape, checks: (options.def as { checks?: z.core.CheckFn<object>[] }).checks ?? [] };
  });
  /** The types that have each key. */
  const elsewhere: Record<string, string[]> = {};
  for (const { name, shape } of kinds)
    for (const key of Object.keys(shape)) (elsewhere[key] ??= []).push(name);
  const forms = kinds.map(({ shape, checks }) => {
    const error: z.core.$ZodErrorMap = ({ code }) =>
      code === "unrecognized_keys" ? keysMessage({ known: Object.keys(shape), elsewhere }) : undefined;
    return z.strictObject(shape, { error }).check(...checks);
  });
  const references = [...new Set(modules?.[role])];
  const own = references.map((name) => z.looseObject({ type: z.literal(name), ...common }));
  const all = [...forms, ...own] as unknown as [(typeof own)[number], ...typeof own];
  const names = kinds.map(({ name }) => name);
  const choices = [
    ...names.map((name) => JSON.stringify(name)),
    ...(modules !== null && (MODULE_ROLES as readonly Role[]).includes(role) ? [MODULE_EXPORT] : []),
  ];
  return z.discriminatedUnion("type", all, {
    error: ({ code, input }) => {
      if (code === "invalid_union") return `must be ${oneOf(choices)}`;
      const meant = typeof input === "string" ? closest(input, names) : null;
      return `must be an object${meant === null ? "" : ` such as {type: ${meant}}`}`;
    },
  }) as unknown as z.ZodType<KindSection, KindSection>;
}
