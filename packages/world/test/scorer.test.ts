import { readFileSync } from "node:fs";
import { EmbeddedToxicityScorer } from "astra-rl";
import { describe, expect, it } from "vitest";
import { drawConversation } from "../src/grammar/conversation.js";
import { drawHeldOut, drawLabelled } from "../src/labelled/draw.js";
import { SeededStream } from "../src/seeded-stream.js";

interface HeldOut {
  text: string;
  kind: string;
  rude: number;
  /** Whether its insult is not in the training data. */
  unseen: boolean;
}

const heldOut = readFileSync(new URL("../../assembly/world/scorer/held-out.jsonl", import.meta.url), "utf8")
  .trim()
  .split("\n")
  .map((line) => JSON.parse(line) as HeldOut);
const scorer = await EmbeddedToxicityScorer.load();

async function scores(texts: readonly string[]): Promise<number[]> {
  return (await scorer.score(texts)).map((outcome) => {
    if (outcome.score === undefined) throw new Error("the embedded scorer cannot fail on a text");
    return outcome.score;
  });
}

/** Probability that a rude text scores higher than a civil one; ties count half. */
function areaUnderCurve(examples: readonly HeldOut[], values: readonly number[]): number {
  const rude = values.filter((_, i) => examples[i]!.rude === 1);
  const civil = values.filter((_, i) => examples[i]!.rude === 0);
  let wins = 0;
  for (const a of rude) for (const b of civil) wins += a > b ? 1 : a === b ? 0.5 : 0;
  return wins / (rude.length * civil.length);
}

describe("the embedded scorer on held-out templates", () => {
  /** Share of right verdicts over the examples of some kinds. */
  async function accuracy(unseen: boolean, kinds: readonly string[]): Promise<number> {
    const examples = heldOut.filter((example) => example.unseen === unseen && kinds.includes(example.kind));
    const values = await scores(examples.map(({ text }) => text));
    return values.filter((value, i) => value >= 0.5 === examples[i]!.rude >= 0.5).length / examples.length;
  }

  it("separates rude from civil texts with known insults", async () => {
    expect(await accuracy(false, ["rude"])).toBeGreaterThanOrEqual(0.95);
    expect(await accuracy(false, ["plain", "meddling", "cross"])).toBeGreaterThanOrEqual(0.99);
    expect(await accuracy(false, ["rude", "plain", "meddling", "cross", "trap"])).toBeGreaterThanOrEqual(
      0.95,
    );
    const examples = heldOut.filter(({ unseen }) => !unseen);
    expect(areaUnderCurve(examples, await scores(examples.map(({ text }) => text)))).toBeGreaterThanOrEqual(
      0.98,
    );
  });

  it("misjudges some traps, but not most", async () => {
    expect(await accuracy(false, ["trap"])).toBeGreaterThanOrEqual(0.7);
  });

  it("finds two in three unseen insults from the words around them", async () => {
    expect(await accuracy(true, ["rude"])).toBeGreaterThanOrEqual(0.65);
    const examples = heldOut.filter(({ unseen }) => unseen);
    expect(areaUnderCurve(examples, await scores(examples.map(({ text }) => text)))).toBeGreaterThanOrEqual(
      0.93,
    );
  });

  it("gives calibrated probabilities, within 0.1", async () => {
    const values = await scores(heldOut.map(({ text }) => text));
    const bins = Array.from({ length: 5 }, () => ({ count: 0, predicted: 0, rude: 0 }));
    values.forEach((value, i) => {
      const bin = bins[Math.min(4, Math.floor(value * 5))]!;
      bin.count += 1;
      bin.predicted += value;
      bin.rude += heldOut[i]!.rude;
    });
    // Expected calibration error: the bins' gaps, weighted by their sizes.
    const error =
      bins.reduce((sum, { predicted, rude }) => sum + Math.abs(predicted - rude), 0) / heldOut.length;
    expect(error).toBeLessThan(0.1);
  });

  it("was trained on no held-out text", () => {
    const stream = new SeededStream(1, "world/labelled");
    const seen = new Set<string>();
    for (let i = 0; i < 40_000; i++) {
      for (const line of drawLabelled(() => stream.uniform()).text.split("\n")) seen.add(line.toLowerCase());
    }
    expect(heldOut.filter(({ text }) => seen.has(text.toLowerCase()))).toEqual([]);
  });

  it("has the same held-out texts as the script draws", () => {
    const stream = new SeededStream(1, "world/held-out");
    const drawn = [false, true].flatMap((unseen) =>
      Array.from({ length: 300 }, () => ({ ...drawHeldOut(() => stream.uniform(), unseen), unseen })),
    );
    expect(heldOut).toEqual(drawn);
  });
});

describe("the embedded scorer on the world's conversations, which it was not trained on", () => {
  const stream = new SeededStream(7, "test/conversations");
  const conversations = Array.from({ length: 1500 }, () => drawConversation(() => stream.uniform()));
  const replies = conversations.flatMap(({ utterances, moods }) =>
    moods.map((mood, turn) => ({ mood, text: `${utterances[2 * turn + 2]}\n` })),
  );

  it("finds the owner's insults and does not flag calm or civil anger", async () => {
    const values = await scores(replies.map(({ text }) => text));
    const rate = (mood: string) => {
      const own = values.filter((_, i) => replies[i]!.mood === mood);
      return own.filter((value) => value >= 0.5).length / own.length;
    };
    expect(rate("rude")).toBeGreaterThanOrEqual(0.97);
    expect(rate("calm")).toBeLessThanOrEqual(0.01);
    expect(rate("stung")).toBeLessThanOrEqual(0.03);
    expect(rate("angry")).toBeLessThanOrEqual(0.1);
  });

  it("finds the other's insults, and does not flag lines that only provoke the owner", async () => {
    const probes = conversations.flatMap(({ utterances, acts }) =>
      acts.map((act, turn) => ({ act, text: `${utterances[2 * turn + 1]}\n` })),
    );
    const values = await scores(probes.map(({ text }) => text));
    const of = (act: string) => values.filter((_, i) => probes[i]!.act === act);
    const insults = of("insult");
    expect(insults.length).toBeGreaterThan(30);
    expect(insults.filter((value) => value >= 0.5).length / insults.length).toBeGreaterThanOrEqual(0.97);
    const wearing = of("nettle");
    expect(wearing.length).toBeGreaterThan(500);
    expect(wearing.filter((value) => value >= 0.5).length / wearing.length).toBeLessThan(1 / 500);
    expect(wearing.reduce((sum, value) => sum + value, 0) / wearing.length).toBeLessThan(0.05);
  });

  it("does not depend on length: three civil utterances together are as civil as one", async () => {
    const civil = conversations.filter(({ acts, moods }) =>
      [...acts, ...moods].every((act) => ["ask", "warm", "sorry", "calm"].includes(act)),
    );
    const values = await scores(civil.map(({ utterances }) => utterances.slice(0, 3).join("\n")));
    expect(values.filter((value) => value >= 0.5).length / values.length).toBeLessThanOrEqual(0.02);
  });
});
