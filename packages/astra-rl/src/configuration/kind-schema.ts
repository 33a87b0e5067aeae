import { z } from "zod";
import type { KindSection, Role, Sections } from "../kinds/index.js";
import { DEFAULT_CACHE_SIZE } from "../scorer/index.js";
import { kindsOf } from "./registry.js";

/**
 * What a resumed run may do with a key, where it is not simply to leave it alone: "free" to change; "content": name
 * another file, as long as the same stands in it.
 */
export const FREE = { resume: "free" };
export const SAME_CONTENT = { resume: "content", path: "file" };

/** The types of each role that are exports of modules; a module checks its own options. */
export type ModuleTypes = Partial<Record<Role, readonly string[]>>;

/** What a reward says of each of its terms, whatever the term. */
const TERM_SHAPE = {
  weight: z.number().describe("What the term's value is multiplied by"),
  optional: z
    .boolean()
    .default(false)
    .describe("A turn that this term has no value for keeps the sum of the others, instead of failing"),
};

const scoreCache = z.strictObject({
  file: z
    .string()
    .min(1)
    .optional()
    .meta({ ...FREE, path: "output" })
    .describe("JSON lines that scores are read from and added to; several runs may share it. Default: none"),
  size: z
    .int()
    .min(1)
    .default(DEFAULT_CACHE_SIZE)
    .meta(FREE)
    .describe("Most scores to hold in memory, the oldest forgotten first"),
});

/** How the scores of a section are remembered. */
export type ScoreCache = z.output<typeof scoreCache>;

/** Seconds that a call to a scorer of the user's may take, unless the configuration says otherwise. */
export const MODULE_DEADLINE = 600;
/** What a timer takes. */
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
      `Seconds after which a call that has not been answered has failed, and is not repeated. Default: ${MODULE_DEADLINE} ` +
        "for a module of your own, which may ask a server; no limit for the package's, which compute",
    ),
  cache: scoreCache.optional().describe("Remember scores, so that no text is scored twice. Default: nothing"),
};

/** Options of every kind of a role, modules included, which its maker does not see. */
export const COMMON_SHAPES: Partial<Record<Role, z.ZodRawShape>> = { term: TERM_SHAPE, scorer: SCORER_SHAPE };

/** The section of a role: one form for each of its kinds, and for each module. */
export function kindSchema(role: Role, modules: ModuleTypes): z.ZodType<KindSection, KindSection> {
  // Made when it is first needed: a scorer may hold scorers, and those others.
  let scorer: z.ZodType<KindSection, KindSection> | undefined;
  const sections: Sections = {
    scorer: z.lazy(() => (scorer ??= unionOf("scorer", modules, sections))).meta({ kind: "scorer" }),
  };
  return unionOf(role, modules, sections).meta({ kind: role });
}

function unionOf(role: Role, modules: ModuleTypes, sections: Sections): z.ZodType<KindSection, KindSection> {
  const common = COMMON_SHAPES[role] ?? {};
  const forms = kindsOf(role).map(({ name, summary, schema }) => {
    const options = typeof schema === "function" ? schema(sections) : schema;
    return z
      .strictObject({
        type: z.literal(name).describe(summary),
        ...common,
        ...options.shape,
      })
      .check(...((options.def as { checks?: z.core.CheckFn<object>[] }).checks ?? []));
  });
  const references = [...new Set(modules[role])];
  const own = references.map((name) => z.looseObject({ type: z.literal(name), ...common }));
  const all = [...forms, ...own] as unknown as [(typeof own)[number], ...typeof own];
  return z.discriminatedUnion("type", all) as unknown as z.ZodType<KindSection, KindSection>;
}
