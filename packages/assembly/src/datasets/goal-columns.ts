import { createHash } from "node:crypto";
import { describeValue, UsageError } from "@astra-rl/base";
import { goalOf, type Goal } from "@astra-rl/lm";

/** The columns of a goal's fields; `text` is required. */
interface GoalColumns {
  /** Columns that tell this table from others. */
  readonly known: readonly string[];
  readonly text: string;
  readonly id?: string;
  readonly category?: string;
  readonly context?: string;
}

/** Tables of behaviours, those with more specific columns first. */
const TABLES: readonly GoalColumns[] = [
  // HarmBench (arXiv 2402.04249).
  {
    known: ["behavior", "behaviorid"],
    text: "behavior",
    id: "behaviorid",
    category: "semanticcategory",
    context: "contextstring",
  },
  // JailbreakBench (arXiv 2404.01318), whose Behavior is a short name.
  { known: ["goal", "behavior"], text: "goal", id: "behavior", category: "category" },
  // StrongREJECT (arXiv 2402.10260).
  { known: ["forbidden_prompt"], text: "forbidden_prompt", category: "category" },
  // Files for this toolbox, and AdvBench (arXiv 2307.15043), which has only the goal.
  { known: ["goal"], text: "goal", id: "goal_id", category: "category", context: "goal_context" },
];

/** Column names are compared without case. */
export const columnName = (name: string): string => name.trim().toLowerCase();

/** Where the goals of a table are; null for a table without goals. */
export interface GoalReader {
  /** The columns that are read, as the table spells them. */
  readonly columns: readonly string[];
  /**
   * @param where begins messages
   * @throws UsageError for a row without a goal
   */
  read(row: Readonly<Record<string, unknown>>, where: string): Goal;
}

/** @param prompt the column with the prompts, which is no goal */
export function goalReaderOf(columns: readonly string[], prompt: string | null): GoalReader | null {
  const spelled = new Map(columns.map((name) => [columnName(name), name]));
  if (prompt !== null) spelled.delete(columnName(prompt));
  const table = TABLES.find(({ known }) => known.every((name) => spelled.has(name)));
  if (table === undefined) return null;
  const { known: _, ...fields } = table;
  const found = Object.entries(fields).flatMap(([field, name]) => {
    const column = spelled.get(name);
    return column === undefined ? [] : [[field as keyof Goal, column] as const];
  });
  return {
    columns: found.map(([, column]) => column),
    read: (row, where) => {
      const values = found.map(([field, column]) => [field, row[column]] as const);
      return goalIn(Object.fromEntries(values), where);
    },
  };
}

/** A goal from a cell: a text, an object `{ id, text, category, context }`, or the fields of a row. */
function goalIn({ text, ...others }: Readonly<Record<string, unknown>>, where: string): Goal {
  const isObject = typeof text === "object" && text !== null;
  const fields = isObject ? { ...others, ...(text as Record<string, unknown>) } : { ...others, text };
  // Empty cells of optional columns are absent.
  const given = Object.entries(fields).filter(
    ([, value]) => value !== undefined && value !== null && value !== "",
  );
  const goal = Object.fromEntries(given) as Partial<Record<keyof Goal, unknown>>;
  if (typeof goal.text !== "string" || goal.text.trim() === "") {
    throw new UsageError(
      "missing-goal",
      `${where}: must have a goal with a text, got ${describeValue(goal.text ?? "")}`,
    );
  }
  const { id = idOf(goal.text), category, context } = goal;
  const unknown = Object.keys(goal).find((name) => !["id", "text", "category", "context"].includes(name));
  if (unknown !== undefined) {
    throw new UsageError(
      "unknown-key",
      `${where}: a goal has id, text, category and context, got ${describeValue(unknown)}`,
    );
  }
  try {
    return goalOf({
      id: typeof id === "number" ? String(id) : id,
      text: goal.text,
      ...(category === undefined ? {} : { category }),
      ...(context === undefined ? {} : { context }),
    } as Goal);
  } catch (error) {
    if (error instanceof UsageError) throw new UsageError(error.rule, `${where}: ${error.message}`);
    throw error;
  }
}

/** Names a goal that has no name by its first words and a hash of its text. */
function idOf(text: string): string {
  const words = text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  return [...words.slice(0, 5), createHash("sha256").update(text).digest("hex").slice(0, 8)].join("-");
}
