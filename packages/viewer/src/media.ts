import { useEffect, useState } from "preact/hooks";

/** Whether a media query matches, updated on changes. */
export function useMedia(media: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(media).matches);
  useEffect(() => {
    const query = matchMedia(media);
    const change = () => setMatches(query.matches);
    query.addEventListener("change", change);
    return () => query.removeEventListener("change", change);
  }, [media]);
  return matches;
}

/** Whether the window is as narrow as a phone, so that drawings need a smaller width in units to stay legible. */
export const useNarrow = () => useMedia("(max-width: 40rem)");
