import { readFileSync } from "node:fs";

/** The version of ASTRA-RL, which all packages share. */
export const { version: packageVersion } = JSON.parse(
  readFileSync(new URL("../package.json", import.meta.url), "utf8"),
) as {
  version: string;
};
