// The options of a class or a function: one schema, read in one way. Must not know: whose options they are.
export { closest } from "./closest.js";
export {
  dotted,
  functionOption,
  hasMethods,
  objectOption,
  parseOptions,
  requireList,
  valueAt,
} from "./parse-options.js";
