import { z } from "zod";
import { didYouMean, UsageError } from "@astra-rl/base";
import { FRAMEWORKS, type Framework } from "./frameworks.js";

/** A tag as its parts: "owasp-llm-2025/LLM01:2025" is entry LLM01:2025, "Prompt Injection". */
export interface Tag {
  framework: keyof typeof FRAMEWORKS;
  id: string;
  /** The publisher's name of the entry. */
  name: string;
}

const known = FRAMEWORKS as Record<string, Framework>;

/** @returns null for a text that names no entry of a known framework */
export function tagOf(text: string): Tag | null {
  const [framework = "", id = ""] = text.split("/", 2);
  const name = Object.hasOwn(known, framework) ? known[framework]!.entries[id] : undefined;
  return name === undefined ? null : { framework: framework as Tag["framework"], id, name };
}

/** Every tag that there is. */
const allTags = (): string[] =>
  Object.entries(known).flatMap(([framework, { entries }]) =>
    Object.keys(entries).map((id) => `${framework}/${id}`),
  );

const tag = z.string().refine((text) => tagOf(text) !== null, {
  params: { rule: "unknown-tag" },
  error: ({ input }) =>
    `must be FRAMEWORK/ID of ${Object.keys(FRAMEWORKS).join(", ")}, such as owasp-llm-2025/LLM01:2025` +
    didYouMean(input, allTags()).replace(/\?$/u, ""),
});

/** Tags of entries in published lists of risks; "none" says that no entry fits. */
export const tagsSchema = z.union([z.literal("none"), z.array(tag).min(1)]);

export type Tags = z.infer<typeof tagsSchema>;

/** "LLM01:2025 Prompt Injection (OWASP Top 10 for LLM Applications 2025)" for each tag; one phrase for none. */
export const tagPhrases = (tags: Tags): string[] =>
  tags === "none"
    ? ["none"]
    : tags.map((text) => {
        const { framework, id, name } = tagOf(text)!;
        return `${id} ${name} (${FRAMEWORKS[framework].name} ${FRAMEWORKS[framework].version})`;
      });

/** The tags of a record's goal, which are its own or the evaluation's; without a goal, the evaluation's. Without any: none. */
export function tagsOf(
  {
    measured,
    goals = [],
  }: {
    measured?: { tags?: Tags | undefined } | undefined;
    goals?: readonly { id: string; tags?: Tags | undefined }[] | undefined;
  },
  goal?: string,
): Tags {
  return goals.find(({ id }) => id === goal)?.tags ?? measured?.tags ?? "none";
}

/** Tags of an evaluation, or of its goals by their ids or categories. */
export const evaluationTagsSchema = z.union([tagsSchema, z.record(z.string(), tagsSchema)]);

/**
 * The tags of an evaluation, if they are given for all of it, and its goals with theirs.
 *
 * @param where begins messages
 * @throws UsageError for tags of a goal or category that there is not
 */
export function tagged<G extends { id: string; category?: string | undefined }>(
  given: z.infer<typeof evaluationTagsSchema> | undefined,
  goals: readonly G[],
  where: string,
): { tags?: Tags; goals: (G & { tags?: Tags })[] } {
  if (given === undefined) return { goals: [...goals] };
  if (given === "none" || Array.isArray(given)) return { tags: given, goals: [...goals] };
  const names = goals.flatMap(({ id, category }) => [id, category ?? []].flat());
  const unknown = Object.keys(given).find((key) => !names.includes(key));
  if (unknown !== undefined) {
    throw new UsageError(
      "unknown-goal",
      `${where}.${unknown}: must be the id or category of a goal of the prompts${didYouMean(unknown, names)}`,
    );
  }
  return {
    goals: goals.map((goal) => {
      const tags = given[goal.id] ?? given[goal.category ?? goal.id];
      return tags === undefined ? goal : { ...goal, tags };
    }),
  };
}
