import { z } from "zod";
import { NoScorer } from "../core/index.js";
import { defineKind } from "../kinds/index.js";

export const noScorerKind = defineKind({
  role: "scorer",
  name: "none",
  summary: "Judges nothing: for environments whose own reward decides",
  schema: z.strictObject({}),
  make: () => new NoScorer(),
});
