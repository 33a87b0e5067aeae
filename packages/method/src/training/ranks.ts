import { distributed, noGrad, type Tensor } from "@astra-rl/torch";
import type { MetricValue } from "@astra-rl/records";
import type { StepResult } from "../algorithm/index.js";
import type { ExperienceBatch, UpdateTotals } from "./index.js";

// How the ranks of a run agree. In a single process, each function returns that process's value.

/** Outcome of a batch: gradient added, updates of the experience ended by a rule's limit or otherwise, or not finite. */
export type Accumulated = "added" | "limit exceeded" | "stopped" | "not finite";

/** Whether the value is true on any rank. */
export async function anyRank(value: boolean): Promise<boolean> {
  return (await distributed.allGatherObject(value)).includes(true);
}

/** The weight of each batch, summed over the ranks' shares of it. */
export async function weightsOfRanks(group: readonly ExperienceBatch<unknown>[]): Promise<number[]> {
  const all = await distributed.allGatherObject(group.map(({ weight }) => weight));
  return group.map((_, index) => all.reduce((sum, weights) => sum + weights[index]!, 0));
}

/** The outcome of a batch, from the ranks' shares of it. */
export async function outcomeOfRanks(own: {
  stop: NonNullable<StepResult["stop"]>;
  isFinite: boolean;
}): Promise<Accumulated> {
  const all = await distributed.allGatherObject(own);
  const rules = all.flatMap(({ stop }) => (typeof stop === "boolean" ? [] : stop));
  const weight = rules.reduce((sum, rule) => sum + rule.weight, 0);
  const mean = rules.reduce((sum, rule) => sum + rule.weight * rule.value, 0) / weight;
  // A single value is compared unweighted: weighting may round it.
  const exceeds = weight > 0 && (rules.length === 1 ? rules[0]!.value : mean) > rules[0]!.limit;
  if (exceeds) return "limit exceeded";
  if (all.some(({ stop }) => stop === true)) return "stopped";
  return all.every(({ isFinite }) => isFinite) ? "added" : "not finite";
}

/** Replaces the gradient of each parameter by its sum over the ranks; one that no rank has stays absent. */
export async function reduceGradients(parameters: readonly Tensor[]): Promise<void> {
  const have = await distributed.allGatherObject(parameters.map(({ grad }) => grad !== null));
  const trained = parameters.filter((_, index) => have.some((own) => own[index]));
  noGrad(() => {
    for (const parameter of trained) parameter.grad ??= parameter.zerosLike();
  });
  await distributed.allReduce_(trained.map(({ grad }) => grad!));
}

/** Sums over the batches of all ranks; what all ranks did together counts once. */
export async function totalsOfRanks(own: UpdateTotals): Promise<UpdateTotals> {
  const all = await distributed.allGatherObject(own);
  const sum = (of: (totals: UpdateTotals) => number) => all.reduce((total, each) => total + of(each), 0);
  const names = new Set(all.flatMap(({ logs }) => [...logs.keys()]));
  return {
    ...own,
    loss: sum(({ loss }) => loss),
    weight: sum(({ weight }) => weight),
    logs: new Map([...names].map((name) => [name, sum(({ logs }) => logs.get(name) ?? 0)])),
  };
}

/** Sums of counts by name; null where no rank counts. */
export function sumOfRanks(all: readonly Record<string, MetricValue>[]): Record<string, MetricValue> {
  const names = new Set(all.flatMap((values) => Object.keys(values)));
  return Object.fromEntries(
    [...names].map((name) => {
      const counts = all.flatMap((values) => (typeof values[name] === "number" ? values[name] : []));
      return [name, counts.length === 0 ? null : counts.reduce((sum, count) => sum + count, 0)];
    }),
  );
}
