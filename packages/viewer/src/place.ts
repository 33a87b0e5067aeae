import { useEffect, useState } from "preact/hooks";

/**
 * The state of the page, in its address after "#", so that a link shows the same: `e` and `c` are an evaluation and a
 * conversation, `r`, `g` and `n` a run, one of its graphs and a node; `run` and `file` are what `astra-rl view` shows.
 */
export type Place = URLSearchParams;

export const placeNow = (): Place => new URLSearchParams(location.hash.slice(1));

/** Changes the state; null removes a part of it. */
export function goTo(parts: Record<string, string | number | null>): void {
  const place = placeNow();
  for (const [key, value] of Object.entries(parts)) {
    if (value === null) place.delete(key);
    else place.set(key, String(value));
  }
  location.hash = place.toString();
}

export function usePlace(): Place {
  const [place, setPlace] = useState(placeNow);
  useEffect(() => {
    const change = () => setPlace(placeNow());
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return place;
}

/** A whole number in the state; null if absent. */
export function numberIn(place: Place, key: string): number | null {
  const text = place.get(key);
  return text !== null && /^\d{1,9}$/u.test(text) ? Number(text) : null;
}
