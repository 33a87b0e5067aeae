export { canariesByTarget, canaryOf, canarySchema, type CanaryRecord } from "./canary-record.js";
export { checkConsistency } from "./consistency.js";
export { FRAMEWORKS, type Framework } from "./frameworks.js";
export { spendingLines, spendingSchema, type SpendingRecord } from "./spending-record.js";
export {
  evaluationTagsSchema,
  tagged,
  tagOf,
  tagPhrases,
  tagsOf,
  tagsSchema,
  type Tag,
  type Tags,
} from "./tags.js";
