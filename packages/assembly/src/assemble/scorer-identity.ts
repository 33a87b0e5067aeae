import { createHash } from "node:crypto";
import type { HubOptions } from "@astra-rl/lm";
import { fileDigest, packageVersion } from "@astra-rl/base";
import type { KindSection } from "@astra-rl/method";
import { isModuleReference, moduleParts, sectionLeaves, sectionModels } from "../configuration/index.js";
import { modelIdentity } from "./model-identity.js";

/**
 * A digest of everything that a section's scores depend on: all options except those that may change between runs,
 * the content of files and models, a module's own file and the run's seed, and the version of this package.
 *
 * It does not cover a module's imports or remote servers.
 */
export async function scorerIdentity(
  section: KindSection,
  { seed, hub }: { seed: number; hub: HubOptions },
): Promise<string> {
  const facts: unknown[] = [packageVersion];
  for (const { path, value, schema } of sectionLeaves("scorer", section)) {
    // Models are added below.
    if (schema.resume === "free" || schema.path === "model") continue;
    if (schema.path === "file") facts.push([path, fileDigest(value as string)]);
    else if (path.at(-1) === "type" && isModuleReference(value as string)) {
      const { module, name } = moduleParts(value as string);
      facts.push([path, fileDigest(module), `#${name}`, seed]);
    } else facts.push([path, value]);
  }
  for (const { key, model } of sectionModels("scorer", section)) {
    facts.push([key, (await modelIdentity(model, hub)).files]);
  }
  return createHash("sha256").update(JSON.stringify(facts)).digest("hex");
}
