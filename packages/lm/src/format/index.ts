/**
 * Converts texts and conversations to rows of ids. Knows tokenizers and message origins; must not know
 * models, caches, or what a conversation is for.
 */
export { Codec } from "./codec.js";
export {
  PlainFormat,
  type Format,
  type OwnIds,
  type Piece,
  type PlainOptions,
  type Row,
  type Span,
} from "./format.js";
export {
  groupByVoice,
  leadsProbe,
  PARAGRAPH,
  preambleOf,
  refuseGoalOfTarget,
  systemOf,
  type Voice,
  type VoiceGroup,
} from "./voices.js";
export { writtenIds } from "./written-ids.js";
export { ChatFormat, HISTORIES, type ChatOptions } from "./chat.js";
export {
  checkModelFormat,
  formatOf,
  makeFormat,
  modelFormat,
  modelFormatShape,
  type FormattedModel,
  type ModelFormat,
} from "./model-format.js";
