import { z } from "zod";
import { defineKind, type PromptOf, type System, type Message, type Conversation } from "../core/index.js";
import { ASTSampler, checkTreeSize, pathShape, type ASTSamplerOptions } from "./ast-sampler.js";

export type PathSamplerOptions<S = Conversation, A = Message> = Omit<ASTSamplerOptions<S, A>, "width">;

/** Single conversations, for algorithms that learn from whole episodes: a tree of width 1. */
export class PathSampler<S = Conversation, A = Message> extends ASTSampler<S, A> {
  /** @throws UsageError, see ASTSampler */
  constructor(system: System<S, A>, prompts: readonly PromptOf<S>[], options: PathSamplerOptions<S, A> = {}) {
    super(system, prompts, { ...options, width: 1 });
  }
}

export const pathSamplerKind = defineKind({
  role: "sampler",
  name: "path",
  summary: "Single conversations",
  schema: z
    .strictObject(pathShape)
    .superRefine((chosen, context) => checkTreeSize({ ...chosen, width: 1 }, context)),
  make: (chosen, { system, prompts, seed }) => new PathSampler(system, prompts, { ...chosen, seed }),
});
