import { z } from "zod";
import { NoScorer, defineKind } from "@astra-rl/method";

export const noScorerKind = defineKind({
  role: "scorer",
  name: "none",
  summary: "No scores: for environments with their own reward",
  schema: z.strictObject({}),
  make: () => new NoScorer(),
});
