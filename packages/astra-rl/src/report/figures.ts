/** A share as a percentage with one decimal; "–" if unknown. */
export function percent(share: number | null): string {
  return share === null ? "–" : `${(100 * share).toFixed(1)} %`;
}

/** A number with a sign and the given decimals; "–" if unknown. */
export function signed(value: number | null, decimals = 2): string {
  if (value === null) return "–";
  const text = plain(value, decimals);
  return text.startsWith("−") ? text : `+${text}`;
}

/** A number with the given decimals; "–" if unknown. */
export function plain(value: number | null, decimals = 2): string {
  // Never −0.00.
  return value === null
    ? "–"
    : value
        .toFixed(decimals)
        .replace(/^-(?=.*[1-9])/, "−")
        .replace("-", "");
}

/** For example "p = 0.031" or "p = 2e-14"; never "p = 0". */
export function pValue(p: number | null): string {
  if (p === null) return "p unknown";
  return `p = ${p >= 0.001 ? p.toFixed(3) : p.toExponential(0)}`;
}
