export type { Accumulated } from "./ranks.js";
