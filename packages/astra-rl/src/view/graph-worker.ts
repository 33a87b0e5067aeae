import { parentPort } from "node:worker_threads";
import { GraphFile } from "./graph-file.js";
import type { GraphAnswer, GraphQuestion } from "./graph-reader.js";

// Reads and searches graphs beside the server's thread, so that a long file keeps no page waiting.
const files = new Map<string, GraphFile>();

function answer({ ask, path, ...given }: GraphQuestion): unknown {
  const file = files.get(path) ?? new GraphFile(path);
  files.set(path, file);
  const wasReset = file.refresh();
  if (ask === "entries") {
    const from = wasReset ? 0 : (given.from ?? 0);
    return { from, total: file.total, entries: file.entries(from) };
  }
  if (ask === "graph") return file.graph(given.index ?? 0);
  return file.search(given.run ?? "", given.query ?? "", given.limit ?? 0);
}

parentPort!.on("message", ({ id, ...question }: GraphQuestion & { id: number }) => {
  let told: GraphAnswer;
  try {
    told = { id, value: answer(question) };
  } catch (error) {
    told = { id, error: error instanceof Error ? error.message : String(error) };
  }
  parentPort!.postMessage(told);
});
