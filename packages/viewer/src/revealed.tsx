import { createContext, type ComponentChildren } from "preact";
import { useContext, useState } from "preact/hooks";
import { Tick } from "./choice.js";

const Revealed = createContext(false);

/** Whether the reader asked for all harmful texts. */
export const useRevealed = (): boolean => useContext(Revealed);

/** Harmful texts are blurred until they are asked for: one by one, or all of the page here. */
export function Revealing({ children }: { children: ComponentChildren }) {
  const [revealed, setRevealed] = useState(false);
  return (
    <>
      <Tick name="Show harmful texts" kind="check reveal" checked={revealed} onChange={setRevealed} />
      <Revealed.Provider value={revealed}>{children}</Revealed.Provider>
    </>
  );
}
