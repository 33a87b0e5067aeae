// Found attacks in the formats of other tools. Must not know: models, training, the command line.
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
  type Exported,
  type ExportFile,
  type ExportFormatName,
  type ExportSource,
} from "./formats.js";
