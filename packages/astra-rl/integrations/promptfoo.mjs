/**
 * A provider for promptfoo that lets a trained tester, behind `astra-rl serve --role tester`, hold a conversation with the
 * target under test. Give it to a test as `provider`; the target is the provider of the configuration.
 *
 *     tests:
 *       - provider:
 *           id: file://node_modules/astra-rl/integrations/promptfoo.mjs
 *           config: { baseURL: http://127.0.0.1:8000/v1, model: best, turns: 3 }
 *
 * The prompt of the test begins the conversation. The output contains all answers of the target, so that an assertion finds harm in
 * any turn; `metadata.messages` has the whole conversation.
 *
 * config: baseURL, model (required); turns (3); maxTokens, temperature, topP, topK and seed of the tester, by default as the
 * server has them; goal of the tester, by default the variable `goal` of the test, if it has one; tokenEnv, the environment variable with the server's token.
 */
export default class AstraProvider {
  #id;
  #config;

  constructor({ id, config = {} }) {
    const known = [
      "baseURL",
      "model",
      "turns",
      "maxTokens",
      "temperature",
      "topP",
      "topK",
      "seed",
      "goal",
      "tokenEnv",
    ];
    const unknown = Object.keys(config).find((key) => !known.includes(key));
    // promptfoo adds its own base path.
    if (unknown !== undefined && unknown !== "basePath") {
      throw new Error(`astra-rl: config.${unknown} is not known; there are ${known.join(", ")}`);
    }
    for (const key of ["baseURL", "model"]) {
      if (typeof config[key] !== "string") throw new Error(`astra-rl: config.${key} must be a string`);
    }
    this.#id = id ?? `astra-rl:${config.model}`;
    this.#config = config;
  }

  id() {
    return this.#id;
  }

  async callApi(prompt, context, options) {
    const target = context?.originalProvider;
    if (target === undefined) {
      return {
        error: "astra-rl: there is no target; give this provider to a test, and the target to providers",
      };
    }
    const { turns = 3, goal = context.vars?.goal } = this.#config;
    const probes = [];
    const answers = [];
    for (let turn = 0; turn < turns; turn += 1) {
      const said = await this.#ask(prompt, goal, probes, answers);
      if (said.error !== undefined)
        return { ...said, metadata: { messages: messagesOf(prompt, probes, answers) } };
      probes.push(said.text);
      const messages = messagesOf(prompt, probes, answers);
      const answer = await target.callApi(JSON.stringify(messages), context, options);
      // Earlier results stay in the metadata.
      if (answer.error !== undefined) return { error: answer.error, metadata: { messages } };
      if ((answer.output ?? null) === null)
        return { error: "the target gave no output", metadata: { messages } };
      answers.push(String(answer.output));
    }
    return { output: answers.join("\n\n"), metadata: { messages: messagesOf(prompt, probes, answers) } };
  }

  /** The tester's next message. */
  async #ask(prompt, goal, probes, answers) {
    const { baseURL, model, maxTokens, temperature, topP, topK, seed, tokenEnv } = this.#config;
    const messages = [{ role: "user", content: prompt }];
    probes.forEach((probe, turn) => {
      messages.push({ role: "assistant", content: probe }, { role: "user", content: answers[turn] });
    });
    const body = { model, messages, max_tokens: maxTokens, temperature, top_p: topP, top_k: topK, goal };
    // The tester needs a different seed in each turn.
    if (seed !== undefined) body.seed = seed + probes.length;
    const token = tokenEnv === undefined ? undefined : process.env[tokenEnv];
    const response = await fetch(`${baseURL.replace(/\/+$/u, "")}/chat/completions`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      body: JSON.stringify(body),
    });
    const answer = await response.json();
    if (!response.ok) return { error: `astra-rl serve: ${answer.error?.message ?? response.status}` };
    const [choice] = answer.choices ?? [];
    const text = choice?.message?.content;
    // Anything else is not a message, such as a generation that failed.
    if (typeof text === "string" && ["stop", "length"].includes(choice.finish_reason)) return { text };
    return { error: `astra-rl serve: no answer, finish_reason ${choice?.finish_reason}` };
  }
}

/** The conversation as the target reads it: the prompt and the first probe are one message. */
function messagesOf(prompt, probes, answers) {
  return probes.flatMap((probe, turn) => {
    const content = turn === 0 ? [prompt, probe].filter((text) => text !== "").join("\n\n") : probe;
    const user = { role: "user", content };
    return turn < answers.length ? [user, { role: "assistant", content: answers[turn] }] : [user];
  });
}
