import type { Message, Conversation } from "@astra-rl/lm";
import { parseOptions } from "@astra-rl/base";
import type { CreditTable, Node } from "../../tree/index.js";
import { pairOptions, type PairOptions } from "./preference-options.js";

/** Two siblings; `chosen` is preferred. */
export interface PreferencePair<S = Conversation, A = Message> {
  chosen: Node<S, A>;
  rejected: Node<S, A>;
}

/**
 * Preference pairs among siblings. Siblings without credit are ignored, ties go to the first, and siblings of equal
 * credit form no pair.
 *
 * `best-worst` is the choice of ASTPrompter (Hardy et al., arXiv 2407.09447); `all` gives up to n(n − 1)/2 pairs of n
 * siblings, as rankings are split into pairs in Ouyang et al., arXiv 2203.02155, section 3.5.
 */
export function preferencePairs<S, A>(
  siblings: readonly Node<S, A>[],
  credit: CreditTable<S, A>,
  options: PairOptions = {},
): PreferencePair<S, A>[] {
  const { pairs, pairMargin, pairThreshold } = parseOptions("preferencePairs", pairOptions, options);
  const worth = (node: Node<S, A>) => credit.get(node)!;
  // Best first; the sort is stable.
  const ranked = siblings
    .filter((node) => Number.isFinite(credit.get(node)))
    .sort((a, b) => worth(b) - worth(a));
  if (ranked.length < 2) return [];
  const lowest = worth(ranked.at(-1)!);
  const candidates =
    pairs === "all"
      ? ranked.flatMap((chosen, rank) => ranked.slice(rank + 1).map((rejected) => ({ chosen, rejected })))
      : [{ chosen: ranked[0]!, rejected: ranked.find((node) => worth(node) === lowest)! }];
  return candidates.filter(({ chosen, rejected }) => {
    const difference = worth(chosen) - worth(rejected);
    if (difference <= 0 || difference < pairMargin) return false;
    return pairThreshold === undefined || (worth(chosen) >= pairThreshold && worth(rejected) < pairThreshold);
  });
}
