import { z } from "zod";
import { NoScorer, defineKind } from "@astra-rl/method";

export const noScorerKind = defineKind({
  role: "scorer",
  name: "none",
  summary: "Judges nothing: for environments whose own reward decides",
  schema: z.strictObject({}),
  make: () => new NoScorer(),
});
