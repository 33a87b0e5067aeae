/** "–" means unknown, never 0. */
const UNKNOWN = "–";

type Figure = number | null | undefined;

const isKnown = (value: Figure): value is number => typeof value === "number" && Number.isFinite(value);

export function percent(share: Figure): string {
  return isKnown(share) ? `${(100 * share).toFixed(1)}\u00A0%` : UNKNOWN;
}

export function plain(value: Figure, decimals = 2): string {
  return isKnown(value) ? value.toFixed(decimals).replace("-", "−") : UNKNOWN;
}

export function signed(value: Figure, decimals = 2): string {
  return isKnown(value) ? `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(decimals)}` : UNKNOWN;
}

export function whole(value: Figure): string {
  return isKnown(value) ? value.toLocaleString("en-US") : UNKNOWN;
}

/** Such as "p = 0.031" or "p = 2e-14"; never "p = 0". */
export function pValue(p: Figure): string {
  if (!isKnown(p)) return UNKNOWN;
  return `p = ${p >= 0.001 ? p.toFixed(3) : p.toExponential(0)}`;
}
