#!/usr/bin/env node
/** Writes packages/astra-rl/configuration.schema.json from the compiled zod schema (`npm run schema`). */
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { configurationJsonSchema } from "../packages/astra-rl/dist/configuration/index.js";

const path = fileURLToPath(new URL("../packages/astra-rl/configuration.schema.json", import.meta.url));
writeFileSync(path, `${JSON.stringify(configurationJsonSchema(), null, 2)}\n`);
