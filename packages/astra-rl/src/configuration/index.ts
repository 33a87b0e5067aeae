// What a run is made of, as one YAML file: the schema, its defaults, and messages that point at a line. It must not
// know how any of it is carried out: models, stages and the command line are strangers here.
export { closest } from "./closest.js";
export { configurationJsonSchema } from "./json-schema.js";
export { parseConfiguration, readConfiguration, type ReadOptions } from "./read.js";
export { parseOverride, type Override } from "./override.js";
export {
  configurationSchema,
  EMBEDDED,
  type Configuration,
  type GenerationSection,
  type ScorerSection,
} from "./schema.js";
export { configurationTemplate, type TemplateOptions } from "./template.js";
export { stringifyConfiguration } from "./write.js";
