import { createContext, type ComponentChildren } from "preact";
import { useContext, useState } from "preact/hooks";
import { Tick } from "./choice.js";

const Revealed = createContext(false);

/** Whether all harmful texts are shown. */
export const useRevealed = (): boolean => useContext(Revealed);

/** Harmful texts are blurred until shown: one by one, or here all of the page. */
export function Revealing({ children }: { children: ComponentChildren }) {
  const [revealed, setRevealed] = useState(false);
  return (
    <>
      <Tick name="Show harmful texts" kind="check reveal" checked={revealed} onChange={setRevealed} />
      <Revealed.Provider value={revealed}>{children}</Revealed.Provider>
    </>
  );
}
