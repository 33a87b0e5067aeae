import { z } from "zod";
import { defineKind } from "../kinds/index.js";
import { rewardCredit } from "./credit.js";

export const rewardCreditKind = defineKind({
  role: "credit",
  name: "reward",
  summary: "A turn's own reward",
  schema: z.strictObject({}),
  make: () => rewardCredit,
});
