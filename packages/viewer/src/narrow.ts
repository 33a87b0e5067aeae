import { useEffect, useState } from "preact/hooks";

/** Whether the window is as narrow as a phone, so that drawings must have fewer units across to stay legible. */
export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia("(max-width: 40rem)").matches);
  useEffect(() => {
    const query = matchMedia("(max-width: 40rem)");
    const change = () => setNarrow(query.matches);
    query.addEventListener("change", change);
    return () => query.removeEventListener("change", change);
  }, []);
  return narrow;
}
