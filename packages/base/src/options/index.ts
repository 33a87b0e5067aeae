export { argumentsSchema } from "./arguments-schema.js";
export { closest, didYouMean } from "./closest.js";
export { deviceSchema } from "./device.js";
export {
  dotted,
  issueLine,
  keysMessage,
  mistakesError,
  oneOf,
  ruleOfIssue,
  validated,
  worded,
  type Mistake,
  type Telling,
  valueAt,
} from "./issues.js";
export { childrenOf, formsOf, keysAt, resolved, type JsonSchema } from "./json-schema.js";
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
