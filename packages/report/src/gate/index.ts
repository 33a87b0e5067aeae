export { gateJUnit, gateMarkdown } from "./gate-files.js";
export { gateSarif } from "./gate-sarif.js";
export { Ledger, type Look } from "./ledger.js";
export {
  acceptAdvice,
  gateOf,
  gateSentence,
  inconclusiveAdvice,
  neededSentence,
  type Gate,
  type GateOptions,
  type RefusalGate,
} from "./gate.js";
