import { UsageError } from "@astra-rl/torch";
import { closest, type ScorerSection } from "../configuration/index.js";
import type { Scorer } from "../core/index.js";
import { EmbeddedToxicityScorer, KeywordScorer } from "../scorer/index.js";

const TYPES = ["embedded", "keyword"] as const;

/**
 * A scorer in one word, for the command line: `embedded`, or `keyword:FILE.json`.
 *
 * @throws UsageError that lists what there is
 */
export function parseScorerSpec(spec: string): ScorerSection {
  const at = spec.indexOf(":");
  const type = at < 0 ? spec : spec.slice(0, at);
  const rest = at < 0 ? "" : spec.slice(at + 1);
  if (type === "embedded" && rest === "") return { type };
  if (type === "keyword" && rest !== "") return { type, file: rest };
  const near = closest(type, TYPES);
  const advice = near === null || near === type ? "" : `; did you mean "${near}"?`;
  throw new UsageError(`--scorer ${spec}: must be "embedded" or "keyword:FILE.json"${advice}`);
}

/** Makes the scorer that a section describes. @throws UsageError when its file or entries are wrong */
export async function assembleScorer(section: ScorerSection): Promise<Scorer> {
  if (section.type === "embedded") return EmbeddedToxicityScorer.load();
  return section.file === undefined
    ? new KeywordScorer(section.entries ?? [])
    : KeywordScorer.load(section.file);
}
