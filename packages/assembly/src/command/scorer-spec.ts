import { UsageError, didYouMean, readTextFile } from "@astra-rl/base";
import type { KindSection } from "@astra-rl/method";
import { findKind, isModuleReference, kindsOf, parseKindSection } from "../configuration/index.js";

/**
 * Parses `--scorer`: a kind (`embedded`), `keyword:FILE.json`, an export of a module (`./file.js#name`), a YAML file
 * with a scorer section or a whole configuration, or an inline section (`{type: keyword, …}`).
 *
 * @throws UsageError that lists the possible forms
 */
export async function readScorerSpec(spec: string): Promise<KindSection> {
  const inline = (section: object) =>
    parseKindSection("scorer", JSON.stringify(section), ".", `--scorer ${spec}`);
  if (spec.trimStart().startsWith("{")) return parseKindSection("scorer", spec, ".", `--scorer ${spec}`);
  if (isModuleReference(spec) || findKind("scorer", spec) !== null) return inline({ type: spec });
  if (spec.startsWith("keyword:")) return inline({ type: "keyword", file: spec.slice("keyword:".length) });
  if (/\.ya?ml$/i.test(spec)) return parseKindSection("scorer", await readTextFile(spec, "the scorer"), spec);
  const names = kindsOf("scorer").map(({ name }) => name);
  const advice = didYouMean(spec.split(":")[0], names);
  throw new UsageError(
    "invalid-scorer",
    `--scorer ${spec}: must be a kind (${names.join(", ")}), keyword:FILE.json, ./file.js#name, a YAML file, or ` +
      `{type: …, …}${advice}`,
  );
}
