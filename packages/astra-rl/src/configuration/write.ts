import { stringify } from "yaml";
import type { Configuration } from "./schema.js";

/** The resolved configuration as YAML, in the order of the schema; reading it again gives the same configuration. */
export function stringifyConfiguration(configuration: Configuration): string {
  return stringify(configuration, { lineWidth: 110 });
}
