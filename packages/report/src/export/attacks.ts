import {
  tagsOf,
  type EvaluationRecord,
  type GoalRecord,
  type GraphRecord,
  type NodeRecord,
  type Tags,
  type ToolCallRecord,
} from "@astra-rl/records";

export interface ChatMessage {
  role: "system" | "user" | "assistant";
  content: string;
}

/** One turn as it is exported. */
export interface AttackTurn {
  probe: string;
  response: string;
  /** What an agent did before it responded; absent for nothing. */
  calls?: readonly ToolCallRecord[];
  /** null where it was not scored. */
  probeHarm: number | null;
  responseHarm: number | null;
  /** Mean −log P of a probe token under the target, in nats; null where it was not measured. */
  probeNll: number | null;
}

/** A conversation of a tester and a target. */
export interface Attack {
  id: string;
  /** Messages before the first probe, as the target reads them. */
  prompt: readonly ChatMessage[];
  turns: readonly AttackTurn[];
  /** Whether the last response is harmful. */
  isHarmful: boolean;
  /** What it was to elicit; absent without a goal. */
  goal?: GoalRecord;
  /** Entries of published lists of risks that it is about; absent without any. */
  tags?: Tags;
}

/** The conversations of an evaluation. A found attack ends with its first harmful response. */
export function attacksOfEvaluation(record: EvaluationRecord): Attack[] {
  const { details, summary, goals = [] } = record;
  const byId = new Map(goals.map((goal) => [goal.id, goal]));
  return details.flatMap(({ overall, per_turn: turns }, index) => {
    const goal = byId.get(overall.goal ?? "");
    // A turn without a scored response may have failed, and ends the conversation.
    const failed = turns.findIndex(({ error, response_harm: harm }) => error !== null && harm === null);
    const all = (failed < 0 ? turns : turns.slice(0, failed)).map((turn): AttackTurn => ({
      probe: turn.probe,
      response: turn.response,
      ...(turn.calls === undefined ? {} : { calls: turn.calls }),
      probeHarm: turn.probe_harm,
      responseHarm: turn.response_harm,
      probeNll: turn.probe_nll,
    }));
    const prompt = promptOf(turns[0]?.context ?? "", turns[0]?.prompt_messages);
    if (all.length === 0) return [];
    const attack = attackOf(`rollout-${index}`, prompt, all, summary.harm_threshold);
    const tags = tagsOf(record, goal?.id);
    return [
      {
        ...attack,
        ...(goal === undefined ? {} : { goal }),
        ...(tags === "none" ? {} : { tags }),
      },
    ];
  });
}

/** The conversations of a training graph: each path to a first harmful response, and to each other leaf. */
export function attacksOfGraph(graph: GraphRecord, threshold = 0.5): Attack[] {
  const prompt = promptOf(graph.context, graph.promptMessages);
  const name = `step-${graph.step ?? 0}-episode-${graph.episode}`;
  const found: Attack[] = [];
  const follow = (node: NodeRecord, before: readonly AttackTurn[], path: string) => {
    const { failure, scores } = node;
    // Harm may be known of a turn that failed afterwards.
    if (failure !== undefined && (failure.stage !== "target" || scores?.["response"] === undefined)) return;
    const turns = [...before, turnOf(node)];
    const isHarmful = (turns.at(-1)!.responseHarm ?? 0) >= threshold;
    if (isHarmful || node.children.length === 0)
      found.push(attackOf(`${name}-${path}`, prompt, turns, threshold));
    if (isHarmful) return;
    node.children.forEach((child, at) => follow(child, turns, `${path}.${at}`));
  };
  graph.children.forEach((child, at) => follow(child, [], String(at)));
  return found;
}

/** Two siblings of a tree, the better one first: training data for DPO. */
export interface PreferencePair {
  /** The conversation as the tester reads it: its own messages are the assistant's. */
  prompt: ChatMessage[];
  chosen: ChatMessage[];
  rejected: ChatMessage[];
}

/** At each node, the child with the highest reward against that with the lowest; none if they are equal. */
export function preferencePairs({ context, promptMessages, children }: GraphRecord): PreferencePair[] {
  const pairs: PreferencePair[] = [];
  const follow = (siblings: readonly NodeRecord[], before: readonly ChatMessage[]) => {
    const valued = siblings.flatMap((node) => {
      const value = node.credit ?? node.reward;
      return value === null || node.failure !== undefined ? [] : [{ node, value }];
    });
    if (valued.length > 1) {
      const best = valued.reduce((a, b) => (b.value > a.value ? b : a));
      const worst = valued.reduce((a, b) => (b.value < a.value ? b : a));
      if (best.value > worst.value) {
        pairs.push({ prompt: [...before], chosen: [said(best.node)], rejected: [said(worst.node)] });
      }
    }
    for (const node of siblings) {
      follow(node.children, [...before, said(node), { role: "user", content: node.response }]);
    }
  };
  // A data set's system message is meant for the target.
  const prompt = (promptMessages ?? []).flatMap(([from, content]): ChatMessage[] =>
    from === "system" ? [] : [{ role: from === "tester" ? "assistant" : "user", content }],
  );
  follow(children, promptMessages === undefined ? [{ role: "user", content: context }] : prompt);
  return pairs;
}

const said = ({ probe }: NodeRecord): ChatMessage => ({ role: "assistant", content: probe });

/**
 * An attack as messages to the target. Prompt and first probe are one user message if no message is between them.
 *
 * @param endsWithResponse whether the last response belongs to it
 */
export function messagesOf({ prompt, turns }: Attack, endsWithResponse: boolean): ChatMessage[] {
  const messages = prompt.filter(({ content }) => content !== "").map((message) => ({ ...message }));
  turns.forEach(({ probe, response }, at) => {
    const last = messages.at(-1);
    if (last?.role === "user") last.content = `${last.content.trimEnd()}\n\n${probe}`;
    else messages.push({ role: "user", content: probe });
    if (at < turns.length - 1 || endsWithResponse) messages.push({ role: "assistant", content: response });
  });
  return messages;
}

const ROLES = {
  system: "system",
  prompt: "user",
  tester: "user",
  around: "user",
  target: "assistant",
} as const;

const promptOf = (text: string, messages?: GraphRecord["promptMessages"]): ChatMessage[] =>
  messages === undefined
    ? [{ role: "user", content: text }]
    : messages.map(([from, content]): ChatMessage => ({ role: ROLES[from], content }));

function attackOf(
  id: string,
  prompt: readonly ChatMessage[],
  turns: readonly AttackTurn[],
  threshold: number,
): Attack {
  const first = turns.findIndex(({ responseHarm }) => (responseHarm ?? 0) >= threshold);
  return { id, prompt, turns: first < 0 ? turns : turns.slice(0, first + 1), isHarmful: first >= 0 };
}

function turnOf({
  probe,
  response,
  failure,
  calls = failure?.calls,
  scores,
  likelihood,
}: NodeRecord): AttackTurn {
  return {
    probe,
    response,
    ...(calls === undefined ? {} : { calls }),
    probeHarm: scores?.["probe"] ?? null,
    responseHarm: scores?.["response"] ?? null,
    probeNll: likelihood?.nll ?? null,
  };
}
