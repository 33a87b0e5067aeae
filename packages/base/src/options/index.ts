export { closest, didYouMean } from "./closest.js";
export { deviceSchema } from "./device.js";
export {
  dotted,
  limitsOf,
  mistakesError,
  oneOf,
  requirement,
  ruleOfIssue,
  tellIssues,
  type Mistake,
  type Telling,
  valueAt,
} from "./issues.js";
export { childrenOf, formsAt, formsOf, keysAt, resolved, type JsonSchema } from "./json-schema.js";
export type { Json } from "./json.js";
export {
  functionOption,
  hasMethods,
  inputSchema,
  objectOption,
  parseLine,
  parseOptions,
  requireList,
} from "./parse-options.js";
