/** Writes packages/astra-rl/configuration.schema.json and docs/configuration.md from the zod schema (`npm run schema`). */
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { configurationJsonSchema } from "astra-rl";
import { configurationReference } from "./configuration-reference.js";

const at = (path: string) => fileURLToPath(new URL(`../${path}`, import.meta.url));
const schema = `${JSON.stringify(configurationJsonSchema(), null, 2)}\n`;
writeFileSync(at("packages/astra-rl/configuration.schema.json"), schema);
writeFileSync(at("docs/configuration.md"), configurationReference());
