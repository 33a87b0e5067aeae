export {
  attacksOfEvaluation,
  attacksOfGraph,
  messagesOf,
  preferencePairs,
  type Attack,
  type AttackTurn,
  type ChatMessage,
  type PreferencePair,
} from "./attacks.js";
export { parseReplayBundle, replayBundle, type ReplayAttack, type ReplayBundle } from "./bundle.js";
export { csvOf, parseCsv, type CsvLine } from "./csv.js";
export {
  EXPORT_FORMATS,
  exportAttacks,
  preferencesText,
  type ExportFile,
  type ExportFormatName,
  type ExportSource,
  type Exported,
} from "./formats.js";
