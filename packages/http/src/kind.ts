import type { Sampling } from "@astra-rl/lm";
import { defineKind, type Kind } from "@astra-rl/method";
import { PROVIDERS } from "./dialects/index.js";
import { HTTPLikelihood } from "./http-likelihood.js";
import { HTTPModel, HTTPTester } from "./http-model.js";
import { optionsOf } from "./options.js";

/** A kind for each provider. */
export const serverKinds: readonly Kind<"target">[] = PROVIDERS.map((provider) =>
  defineKind({
    role: "target",
    name: provider.type,
    summary: provider.summary,
    schema: optionsOf(provider),
    make: (server, { generation, name, role, key }) => {
      if (role === "likelihood") return new HTTPLikelihood(name, { server, where: key });
      const options = { server, sampling: generation as Sampling, where: key };
      return role === "tester" ? new HTTPTester(name, options) : new HTTPModel(name, "target", options);
    },
  }),
);
