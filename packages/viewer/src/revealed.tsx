import { createContext, type ComponentChildren } from "preact";
import { useContext, useState } from "preact/hooks";

const Revealed = createContext(false);

/** Whether the reader asked for all harmful texts. */
export const useRevealed = (): boolean => useContext(Revealed);

/** Harmful texts are blurred until they are asked for: one by one, or all of the page here. */
export function Revealing({ children }: { children: ComponentChildren }) {
  const [revealed, setRevealed] = useState(false);
  return (
    <>
      <label class="check reveal">
        <input
          type="checkbox"
          checked={revealed}
          onChange={(event) => setRevealed(event.currentTarget.checked)}
        />
        Show harmful texts
      </label>
      <Revealed.Provider value={revealed}>{children}</Revealed.Provider>
    </>
  );
}
