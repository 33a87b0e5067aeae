export { hardenReport, type Hardened } from "./harden-report.js";
