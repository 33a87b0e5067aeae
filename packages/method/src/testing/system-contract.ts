import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Message } from "@astra-rl/lm";
import { arange, noGrad, scope, type Tensor } from "@astra-rl/torch";
import { hasValues, type System } from "../system/index.js";
import { expand, type NodeKey, type ResponseOf } from "../tree/index.js";
import { expect, expectEqual, runChecks, show, type ContractCheck } from "./contract-checks.js";

export interface SystemCheckOptions<S, A> {
  /** At least two states to generate probes from. */
  contexts: readonly S[];
  /** A probe for each, other than those that the tester generates. */
  probes: readonly A[];
  /** How much a number may depend on the rest of a batch, because of rounding. Default 1e-4. */
  tolerance?: number;
}

/** Changes each number by another amount: log-probabilities do not show what is added to all logits. */
function change(parameter: Tensor): void {
  const { shape, dtype, device } = parameter;
  parameter.add_(arange(parameter.numel(), { dtype: "float32", device }).sin().reshape(shape).to(dtype));
}

/** What can be compared: log-probabilities may differ in their last digits with a model's cache. */
const generated = (each: unknown): string =>
  show(each instanceof Message ? [each.text, each.sampled?.ids] : each);

/**
 * The rules for every system, one by one, so that any test runner can make each a test. See `checkSystem`.
 *
 * @param get returns the system; the caller disposes of it
 */
export function systemChecks<S, A>(
  get: () => System<S, A> | Promise<System<S, A>>,
  { contexts, probes, tolerance = 1e-4 }: SystemCheckOptions<S, A>,
): ContractCheck[] {
  const keys = contexts.map((_, episode): NodeKey => ({ seed: 7, episode, node: 1 }));
  const responsesOf = async ({ checked }: System<S, A>): Promise<ResponseOf<S>[]> =>
    checked.rolloutPromptWithTarget(
      contexts.map((context, row) => checked.promptForTarget(context, probes[row]!)),
      keys,
    );
  const checks: Record<string, (system: System<S, A>) => Promise<void>> = {
    "generates the same for the same keys, and a row alone as in a batch": async ({ checked }) => {
      for (const roll of ["rolloutPromptWithTester", "rolloutPromptWithTarget"] as const) {
        const first = (await checked[roll](contexts, keys)).map(generated);
        const again = (await checked[roll](contexts, keys)).map(generated);
        expect(
          show(again) === show(first),
          `${roll}: the same keys gave ${show(again)} after ${show(first)}`,
        );
        for (const [row, context] of contexts.entries()) {
          const alone = (await checked[roll]([context], [keys[row]!])).map(generated);
          expect(
            alone[0] === first[row],
            `${roll}: row ${row} alone gave ${alone[0]}, and ${first[row]} in a batch`,
          );
        }
      }
    },
    "scores tokens, with a gradient for the tester only": (system) =>
      scope(async () => {
        const { checked } = system;
        const { lengths } = await checked.getTesterLogprobs(contexts, probes);
        await checked.getTargetLogprobs(contexts, probes);
        if (system.missingCapability("baseline") !== null) return;
        const baseline = await checked.getBaselineLogprobs(contexts, probes);
        expect(
          show(baseline.lengths) === show(lengths),
          `tester and baseline must score the same tokens, got ${show(lengths)} and ${show(baseline.lengths)} of them`,
        );
      }),
    "scores a row alone as in a batch": ({ checked }) =>
      scope(() =>
        noGrad(async () => {
          for (const method of ["getTesterLogprobs", "getTargetLogprobs"] as const) {
            const together = (await checked[method](contexts, probes)).rows();
            for (const [row, context] of contexts.entries()) {
              const [alone] = (await checked[method]([context], [probes[row]!])).rows();
              expectEqual(alone!, together[row]!, tolerance, `${method}: row ${row} alone`);
            }
          }
        }),
      ),
    "has values for the tester's tokens, if any": async (system) => {
      if (!hasValues(system)) return;
      await scope(
        async () => void (await system.checked.getTesterOutput(contexts, probes, { values: true })),
      );
    },
    "rewards each turn with a finite number, alone as in a batch": async (system) => {
      const responses = await responsesOf(system);
      const together = await system.checked.reward(contexts, probes, responses, keys);
      for (const [row, context] of contexts.entries()) {
        const turn = [[context], [probes[row]!], [responses[row]!], [keys[row]!]] as const;
        const alone = await system.checked.reward(...turn);
        expectEqual(alone, [together[row]!], tolerance, `reward: turn ${row} alone`);
      }
    },
    "advances without changing what it is given": async (system) => {
      const { checked } = system;
      const responses = await responsesOf(system);
      const before = show([contexts, probes, responses]);
      const next = () =>
        show(
          contexts.map((context, row) => [
            checked.promptForTarget(context, probes[row]!),
            checked.advance(context, probes[row]!, responses[row]!),
          ]),
        );
      const first = next();
      expect(next() === first, "promptForTarget and advance must give the same again");
      expect(
        show([contexts, probes, responses]) === before,
        "promptForTarget and advance must not change a state",
      );
    },
    "accepts no rows": async (system) => {
      const { checked } = system;
      const results = [
        await checked.rolloutPromptWithTester([], []),
        await checked.rolloutPromptWithTarget([], []),
        await expand(system, []),
        await system.assess([], [], []),
      ];
      expect(results.flat().length === 0, `no rows must give no results, got ${show(results)}`);
    },
    "has trainable parameters, which it saves and restores": async (system) => {
      const parameters = [...system.parameters()];
      expect(
        parameters.some(({ requiresGrad }) => requiresGrad),
        "parameters() must contain a tensor that requires a gradient",
      );
      const folder = mkdtempSync(join(tmpdir(), "check-system-"));
      const scores = () =>
        scope(async () =>
          (await noGrad(() => system.checked.getTesterLogprobs(contexts, probes))).rows().flat(),
        );
      try {
        const before = await scores();
        await system.saveTester(join(folder, "tester"));
        // A restore that does nothing must not pass.
        noGrad(() => scope(() => parameters.forEach(change)));
        await system.testerUpdated();
        await system.restoreTester(join(folder, "tester"));
        await system.testerUpdated();
        expectEqual(await scores(), before, 0, "a restored tester must give the numbers of the saved one");
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
    "has state that is JSON, and restores it": (system) => {
      const state = system.getState();
      const copy = JSON.parse(show(state)) as typeof state;
      system.setState(copy);
      expect(show(system.getState()) === show(state), `setState(getState()) must restore ${show(state)}`);
      return Promise.resolve();
    },
  };
  return Object.entries(checks).map(([name, check]) => ({ name, run: async () => check(await get()) }));
}

/**
 * Checks a custom system before it is trained: generates, scores and rewards with it, and saves, changes and
 * restores its parameters. A system that does not restore them stays changed.
 *
 * @throws ContractError with a line for each broken rule
 */
export function checkSystem<S, A>(system: System<S, A>, options: SystemCheckOptions<S, A>): Promise<void> {
  return runChecks(
    "system",
    systemChecks(() => system, options),
  );
}
