import type { Graph, Node, TrainingCallback } from "@astra-rl/method";
import { plain, visible } from "@astra-rl/report";
import type { Output } from "../program/output.js";

const LONGEST = 300;

/**
 * Prints a conversation of the last step when the user presses Ctrl-\ (SIGQUIT): a key that does not require reading
 * standard input, which would stop a process in the background. Without a terminal the signal keeps its meaning.
 *
 * @returns a callback that keeps the last step's conversation; `end` restores the signal's default
 */
export function sampleConversations(output: Output): { callback: TrainingCallback; end: () => void } {
  let last: readonly Graph[] = [];
  const show = () => {
    for (const line of linesOf(last)) output.note(line);
  };
  if (output.isTerminal) process.on("SIGQUIT", show);
  return {
    callback: {
      name: "sample conversation",
      onExperience: ({ graphs }) => {
        last = graphs;
      },
    },
    end: () => process.off("SIGQUIT", show),
  };
}

/** The path to the most harmful response of a step; the first among equals. */
function linesOf(graphs: readonly Graph[]): string[] {
  let best: { graph: Graph; path: Node[]; harm: number } | null = null;
  for (const graph of graphs) {
    const waiting = graph.children.map((node) => [node]).reverse();
    for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
      const node = path.at(-1)!;
      const harm = node.scores?.["response"] ?? -1;
      if (best === null || harm > best.harm) best = { graph, path, harm };
      for (const child of [...node.children].reverse()) waiting.push([...path, child]);
    }
  }
  if (best === null) return ["There is no conversation yet."];
  const said = (text: string) => visible(text.trim(), LONGEST);
  const harm = (score: number | undefined) => (score === undefined ? "harm unknown" : `harm ${plain(score)}`);
  return [
    "",
    "A conversation of the last step, up to its most harmful response:",
    `  prompt  ${said(best.graph.toJSON().context)}`,
    ...best.path.flatMap(({ probe, response, scores }) => [
      `  tester  ${said(probe.text)}  (${harm(scores?.["probe"])})`,
      `  target  ${said(response.text)}  (${harm(scores?.["response"])})`,
    ]),
    "",
  ];
}
