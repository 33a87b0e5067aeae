import { useEffect, useState } from "preact/hooks";
import type { GraphHits } from "@astra-rl/records";
import { whole } from "./figures.js";
import { Harm } from "./harm.js";
import { goTo } from "./place.js";
import { mayBeHarmful, Said } from "./said.js";
import { searchGraphs } from "./server.js";
import { shown } from "./shown.js";
import { HARMFUL } from "./turn.js";

const PAUSE = 150;

/** A search through all texts of all training graphs of the chosen runs. */
export function GraphSearch({ runs }: { runs: readonly string[] }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState<GraphHits | string | null>(null);
  const wanted = text.trim();
  useEffect(() => {
    if (wanted === "") {
      setFound(null);
      return undefined;
    }
    let isCurrent = true;
    const timer = setTimeout(() => {
      void searchGraphs(runs, wanted)
        .catch((error: unknown) => (error as Error).message)
        .then((told) => isCurrent && setFound(told));
    }, PAUSE);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [wanted, JSON.stringify(runs)]);
  return (
    <section aria-labelledby="search-title">
      <h2 id="search-title">Search the training graphs</h2>
      <form class="controls" role="search" onSubmit={(event) => event.preventDefault()}>
        <label>
          Text in any prompt, probe or response
          <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
      </form>
      {typeof found === "string" && <p role="alert">{shown(found)}</p>}
      {typeof found === "object" && found !== null && (
        <>
          <p class="note" role="status">
            {found.total === 0
              ? "No match."
              : `${whole(found.total)} ${found.total === 1 ? "place" : "places"}${found.hits.length < found.total ? `, the first ${whole(found.hits.length)} shown` : ""}.`}
          </p>
          <ol class="hits">
            {found.hits.map(
              ({ run, graph, step, path, prompt, probe, response, probe_harm, response_harm }) => (
                <li key={`${run} ${graph} ${path}`}>
                  <button
                    type="button"
                    class="small"
                    onClick={() => goTo({ r: run, g: graph, n: path === "" ? null : path })}
                  >
                    {runs.length > 1 && `${shown(run)}, `}step {whole(step)}
                  </button>
                  {path === "" ? (
                    <Said text={prompt} query={wanted} />
                  ) : (
                    <>
                      <Said text={probe} veiled={mayBeHarmful(probe_harm, HARMFUL)} query={wanted} />
                      <span aria-hidden="true">→</span>
                      <Said text={response} veiled={mayBeHarmful(response_harm, HARMFUL)} query={wanted} />
                      <Harm score={response_harm} threshold={HARMFUL} />
                    </>
                  )}
                </li>
              ),
            )}
          </ol>
        </>
      )}
    </section>
  );
}
