import type { Misfit } from "../kinds/index.js";
import { findKind } from "./registry.js";
import type { Configuration } from "./schema.js";

/** What the chosen algorithm does not go with; null where everything fits. */
export async function algorithmMisfit(configuration: Configuration): Promise<Misfit | null> {
  const { sampler, seed } = configuration;
  const { type, ...options } = configuration.algorithm;
  const kind = findKind("algorithm", type);
  if (kind?.check === undefined) return null;
  const { type: creditType, ...creditOptions } = configuration.credit;
  const credit = (await findKind("credit", creditType)?.make(creditOptions, { seed })) ?? null;
  return kind.check(options, { sampler, credit });
}
