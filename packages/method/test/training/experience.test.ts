import { describe, expect, it } from "vitest";
import { liveTensors, noGrad, scope } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { breaking } from "../../../base/test/support/breaking.js";
import { DPO, type PreferenceStep } from "../../src/algorithm/preference/index.js";
import { REINFORCE } from "../../src/algorithm/policy-gradient/index.js";
import { ContractError, rewardCredit } from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { Harness, Trainer, TrainingConfiguration } from "../../src/training/index.js";
import { BigramSystem } from "../support/bigram-system.js";

const samplerOf = (system: BigramSystem, width = 3) =>
  new ASTSampler(system, ["x", "y"], { width, depth: 2 });

describe("experience", () => {
  it("comes in batches of the configured size and in a drawn order, the same for the same seed", async () => {
    const collect = async (seed: number) => {
      const system = new BigramSystem();
      const harness = new Harness(samplerOf(system), new DPO(system), {
        numEpisodesPerExperience: 6,
        batchSize: 4,
        seed,
      });
      const experiences = [await harness.experience(), await harness.experience()];
      system.dispose();
      return experiences;
    };
    const [first, second] = await collect(0);
    const system = new BigramSystem();
    const solver = new DPO(system);
    const pairs = first!.graphs.flatMap((graph) => solver.flatten(graph, rewardCredit(graph)));
    system.dispose();
    expect(first!.size).toBe(pairs.length);
    expect(first!.batches.map(({ size }) => size)).toEqual([
      ...Array.from({ length: Math.floor(pairs.length / 4) }, () => 4),
      ...(pairs.length % 4 > 0 ? [pairs.length % 4] : []),
    ]);
    const learned = [...first!].flatMap(({ contexts, chosen, rejected, creditGaps }) =>
      contexts.map((context, pair) => ({
        context,
        chosen: chosen[pair]!,
        rejected: rejected[pair]!,
        creditGap: creditGaps![pair]!,
      })),
    );
    const names = (steps: readonly object[]) => steps.map((step) => JSON.stringify(step));
    expect(names(learned).sort()).toEqual(names(pairs).sort());
    expect(names(learned)).not.toEqual(names(pairs));
    // The second experience continues with further episodes.
    expect(second!.graphs.map((graph) => graph.episode)).toEqual([6, 7, 8, 9, 10, 11]);
    const contents = (experiences: Awaited<ReturnType<typeof collect>>) =>
      experiences.map((experience) => [experience.graphs, [...experience]]);
    expect(contents(await collect(0))).toEqual(contents([first!, second!]));
    expect(contents(await collect(1))[0]).not.toEqual(contents([first!])[0]);
  });

  it("of a seed is the same each time, and does not advance the harness's own sequence", async () => {
    const system = new BigramSystem();
    const harness = new Harness(samplerOf(system), new DPO(system), {
      numEpisodesPerExperience: 4,
      batchSize: 4,
    });
    const contents = async (seed?: number) => {
      const { graphs, batches } = await harness.experience(seed);
      return JSON.stringify([graphs, batches]);
    };
    const [five, again, six] = [await contents(5), await contents(5), await contents(6)];
    expect(again).toBe(five);
    expect(six).not.toBe(five);
    expect(harness.getState()).toMatchObject({ nextEpisode: 0, nextExperience: 0 });
    // 0 is a seed, and the episodes of a seed are another draw each.
    expect(await contents(0)).toBe(await contents());
    expect(await contents(0)).not.toBe(await contents());
    const { graphs } = await harness.experience(5);
    expect(graphs.map(({ seed, episode }) => [seed, episode])).toEqual([0, 1, 2, 3].map((at) => [5, at]));
    for (const seed of [0.5, NaN, "5", null]) {
      await expect(harness.experience(seed as number)).rejects.toThrow(
        breaking("out-of-range", "Harness.experience"),
      );
    }
    system.dispose();
  });

  it("keeps four steps of a graph together, for any batch size", async () => {
    const orders: string[][] = [];
    for (const batchSize of [1, 4, 7]) {
      const system = new BigramSystem();
      const sampler = new ASTSampler(system, ["x", "y"], { width: 2, depth: 3 });
      const harness = new Harness(sampler, new REINFORCE(system), {
        numEpisodesPerExperience: 5,
        batchSize,
      });
      const experience = await harness.experience();
      // Branches by graph and place: 1 + 2 + 4 of each graph, known by their first turns.
      const turns = experience.graphs.map((graph) => [...graph.siblings()].map((siblings) => siblings[0]!));
      expect(turns.map((of) => of.length)).toEqual([7, 7, 7, 7, 7]);
      const name = new Map(
        turns.flatMap((of, graph) => of.map((node, at) => [node, `${graph}.${at}`] as const)),
      );
      const epochs = [0, 1, 2].map((epoch) =>
        experience.epoch(epoch).flatMap(({ batch }) => batch.nodes.flatMap((node) => name.get(node) ?? [])),
      );
      for (const [epoch, order] of epochs.entries()) {
        expect([...order].sort()).toEqual([...name.values()].sort());
        const steps = order.map((step) => step.split(".").map(Number) as [graph: number, place: number]);
        // A sequence continues if the next step is the graph's next one, also around its end.
        const isNext = (at: number) =>
          steps[at]![0] === steps[at - 1]![0] && steps[at]![1] === (steps[at - 1]![1] + 1) % 7;
        const starts = steps.flatMap((step, at) => (at === 0 || !isNext(at) ? [step] : []));
        // Two runs of each graph, of four and three, or one where they happen to follow each other.
        expect(starts.length).toBeLessThanOrEqual(10);
        expect(starts.length).toBeGreaterThan(5);
        if (epoch === 0) expect(starts.filter(([, place]) => place % 4 !== 0)).toEqual([]);
        else expect(starts.some(([, place]) => place % 4 !== 0)).toBe(true);
        expect(starts.map(([graph]) => graph)).not.toEqual([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
      }
      expect(new Set(epochs.map(String)).size).toBe(3);
      orders.push(epochs.map(String));
      system.dispose();
    }
    expect(orders[1]).toEqual(orders[0]);
    expect(orders[2]).toEqual(orders[0]);
  });

  it("treats the steps of all graphs as those of one if prepare removes some", async () => {
    type Step = PreferenceStep<string, string>;
    class Choosy extends DPO<string, string> {
      kept: readonly Step[] = [];
      readonly collated: Step[] = [];
      override async prepare(steps: readonly Step[]): Promise<readonly Step[]> {
        return (this.kept = steps.slice(1));
      }
      override collate(steps: readonly Step[]) {
        this.collated.push(...steps);
        return super.collate(steps);
      }
    }
    const system = new BigramSystem();
    const options = { numEpisodesPerExperience: 4, batchSize: 100 };
    const choosy = new Choosy(system);
    const { graphs, batches } = await new Harness(samplerOf(system), choosy, options).experience();
    const pairs = graphs.flatMap((graph) => choosy.flatten(graph, rewardCredit(graph))).slice(1);
    expect(choosy.kept).toEqual(pairs);
    expect(batches[0]!.batch.chosen).toEqual(choosy.collated.map(({ chosen }) => chosen));
    const order = choosy.collated.map((step) => choosy.kept.indexOf(step));
    expect([...order].sort((a, b) => a - b)).toEqual([...pairs.keys()]);
    const starts = order.filter((pair, at) => at === 0 || pair !== order[at - 1]! + 1);
    expect(starts.filter((pair) => pair % 4 !== 0)).toEqual([]);
    system.dispose();
  });

  it("refuses a sampler of width 1 and one of another system", () => {
    const [system, other] = [new BigramSystem(), new BigramSystem()];
    expect(() => new Harness(samplerOf(system, 1), new DPO(system))).toThrow(UsageError);
    expect(() => new Harness(samplerOf(other), new DPO(system))).toThrow(breaking("separate-systems"));
    system.dispose();
    other.dispose();
  });
});

describe("a loss without a gradient", () => {
  class Detached extends DPO<string, string> {
    override async step(...given: Parameters<DPO<string, string>["step"]>) {
      const result = await super.step(...given);
      return { ...result, loss: result.loss.detach() };
    }
  }
  const rule =
    "Detached.step: the loss must carry a gradient, or training changes nothing; compute it from getTesterLogprobs";

  it("is refused by name, with a remedy, in a custom loop and in training", async () => {
    const system = new BigramSystem();
    const before = liveTensors();
    await scope(async () => {
      const harness = new Harness(samplerOf(system), new Detached(system), { numEpisodesPerExperience: 2 });
      const [batch] = [...(await harness.experience())];
      await expect(harness.step(batch!)).rejects.toThrow(ContractError);
      await expect(harness.step(batch!)).rejects.toThrow(rule);
      // Without gradients, a loss is only a number.
      expect(await noGrad(async () => (await harness.step(batch!)).loss.item())).toBeGreaterThan(0);
    });
    const configuration = new TrainingConfiguration({ trainingSteps: 1, numEpisodesPerExperience: 2 });
    const trainer = new Trainer(configuration, samplerOf(system), new Detached(system));
    await expect(trainer.train()).rejects.toThrow(rule);
    trainer.dispose();
    expect(liveTensors()).toBe(before);
    system.dispose();
  });
});
