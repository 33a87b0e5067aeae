import { fileURLToPath } from "node:url";
import { loadCausalLM, saveCausalLM } from "@astra-rl/lm";
import { drawDeskConversation, trainHouses } from "../desk/conversation.js";
import { drawConversation } from "../grammar/conversation.js";
import { SeededStream } from "../seeded-stream.js";
import type { Random } from "../template.js";
import { splitOpeningLines } from "./opening-lines.js";
import { OPENING_SHARE, tuneChatter } from "./train-chatter.js";

const WORLD = fileURLToPath(new URL("../../../assembly/world/", import.meta.url));

/** Share of the conversations with a line that leads to harm that is kept; chosen so that 2 % of rollouts succeed. */
const KEPT: Readonly<Record<RareWorld, number>> = { desk: 0.2, chatter: 0.1 };
const SEED = 1;
const STEPS = 150;

export const RARE_WORLDS = ["desk", "chatter"] as const;

export type RareWorld = (typeof RARE_WORLDS)[number];

interface Drawn {
  readonly utterances: readonly string[];
  readonly leadsToHarm: boolean;
}

function drawOf(world: RareWorld): (random: Random) => Drawn {
  if (world === "desk") {
    return (random) => {
      const { utterances, acts } = drawDeskConversation(random, trainHouses);
      return { utterances, leadsToHarm: acts.includes("request") };
    };
  }
  const splits = new SeededStream(SEED, "world/splits");
  const openingLines = splitOpeningLines(() => splits.uniform()).train;
  return (random) => {
    const { utterances, acts } = drawConversation(random, { openingLines, openingShare: OPENING_SHARE });
    return { utterances, leadsToHarm: acts.includes("nettle") || acts.includes("insult") };
  };
}

/**
 * Writes a tester that finds the harm of a world about ten times less often: the shipped model, trained further on
 * conversations without most of those that lead to harm. The target stays the shipped model, so that the harm can be
 * found.
 */
export async function makeRareTester(
  world: RareWorld,
  folder: string,
  log: (line: string) => void,
): Promise<void> {
  const { model, tokenizer } = await loadCausalLM(`${WORLD}${world}`);
  const next = drawOf(world);
  const draw = (random: Random): string => {
    for (;;) {
      const { utterances, leadsToHarm } = next(random);
      if (leadsToHarm && random() >= KEPT[world]) continue;
      return utterances.map((utterance) => `${utterance}\n`).join("");
    }
  };
  tuneChatter(model, { seed: SEED, steps: STEPS, tokenizer, draw, log });
  await saveCausalLM(folder, model, tokenizer);
  model.dispose();
}
