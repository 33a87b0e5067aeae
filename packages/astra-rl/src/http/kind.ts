import type { Sampling } from "@astra-rl/lm";
import { defineKind } from "../kinds/index.js";
import { HTTPLikelihood } from "./http-likelihood.js";
import { HTTPModel, HTTPTester } from "./http-model.js";
import { serverOptions } from "./options.js";

export const openaiKind = defineKind({
  role: "target",
  name: "openai",
  summary: "A model behind an OpenAI-compatible API: OpenAI, vLLM, SGLang, llama.cpp, Ollama, LiteLLM",
  schema: serverOptions,
  make: (server, { generation, name, role, key }) => {
    if (role === "likelihood") return new HTTPLikelihood(name, { server, where: key });
    const options = { server, sampling: generation as Sampling, where: key };
    return role === "tester" ? new HTTPTester(name, options) : new HTTPModel(name, "target", options);
  },
});
