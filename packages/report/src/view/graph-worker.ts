import { parentPort } from "node:worker_threads";
import { UsageError } from "@astra-rl/base";
import { GraphFile } from "./graph-file.js";
import type { GraphAnswer, GraphQuestion } from "./graph-reader.js";

// Reads and searches graphs in a separate thread, so that a long file does not block pages.
const files = new Map<string, GraphFile>();

function answer(question: GraphQuestion): unknown {
  const { ask, path } = question;
  const file = files.get(path) ?? new GraphFile(path);
  files.set(path, file);
  const wasReset = file.refresh();
  if (ask === "graph") return file.graph(question.index);
  if (ask === "search") return file.search(question.run, question.query, question.limit);
  const from = wasReset ? 0 : question.from;
  return { from, total: file.total, entries: file.entries(from) };
}

parentPort!.on("message", ({ id, ...question }: GraphQuestion & { id: number }) => {
  let told: GraphAnswer;
  try {
    told = { id, value: answer(question) };
  } catch (error) {
    const rule = error instanceof UsageError ? error.rule : "graph-unreadable";
    told = { id, error: error instanceof Error ? error.message : String(error), rule };
  }
  parentPort!.postMessage(told);
});
