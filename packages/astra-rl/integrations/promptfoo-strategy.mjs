/**
 * A strategy for promptfoo's red-team tests: a trained tester runs each of them over several turns, instead of
 * sending it unchanged.
 *
 *     redteam:
 *       strategies:
 *         - id: file://node_modules/astra-rl/integrations/promptfoo-strategy.mjs
 *           config: { baseURL: http://127.0.0.1:8000/v1, model: best, turns: 3 }
 *
 * config: as of promptfoo.mjs, the provider that it gives to every test.
 */
import { fileURLToPath } from "node:url";

const provider = fileURLToPath(new URL("promptfoo.mjs", import.meta.url));

export default {
  id: "astra-rl",
  async action(testCases, injectVar, config) {
    return testCases.map((testCase) => ({
      ...testCase,
      provider: { id: `file://${provider}`, config },
      metadata: { ...testCase.metadata, strategyId: "astra-rl" },
    }));
  },
};
