import { z } from "zod";
import { NoScorer } from "../core/index.js";
import { defineKind } from "../kinds/index.js";

export const noScorerKind = defineKind({
  role: "scorer",
  name: "none",
  summary: "No scores: for environments with their own reward",
  schema: z.strictObject({}),
  make: () => new NoScorer(),
});
