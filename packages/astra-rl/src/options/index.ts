// Validates options and sections by zod schemas, and formats their errors. Must not know: whose options they are.
export { closest, didYouMean } from "./closest.js";
export { deviceSchema } from "./device.js";
export {
  dotted,
  limitsOf,
  mistakesError,
  oneOf,
  requirement,
  tellIssues,
  valueAt,
  type Telling,
} from "./issues.js";
export { childrenOf, formsAt, formsOf, keysAt, resolved, type JsonSchema } from "./json-schema.js";
export {
  functionOption,
  hasMethods,
  inputSchema,
  objectOption,
  parseLine,
  parseOptions,
  requireList,
} from "./parse-options.js";
export type { Json } from "./json.js";
