// Turns records into readable reports, with model output escaped. Must not know: models, tensors, how a run works.
export { bestAdvice, neededRollouts, repeatsAdvice, successError } from "./advice.js";
export { auditReport } from "./audit-report.js";
export { compareTable, tableLines, tableMarkdown, transferTable, type Table } from "./compare-report.js";
export {
  comparisonReport,
  evaluationReport,
  rewardHack,
  type ComparisonReportOptions,
} from "./comparison-report.js";
export { conversationLines, foundConversations, foundReport } from "./conversations.js";
export { between, percent, plain, pValue, signed, written } from "./figures.js";
export {
  acceptAdvice,
  gateJUnit,
  gateMarkdown,
  gateOf,
  gateSentence,
  neededSentence,
  type Gate,
} from "./gate-report.js";
export { hardenReport, type Hardened } from "./harden-report.js";
export { embeddedJson, htmlReport, viewPage } from "./html-report.js";
export { EVALUATION_FILES, linesOf, readReport, slim, type ReadReportOptions } from "./read-report.js";
export { searchLines } from "./search-report.js";
export { table } from "./table.js";
export { testerCard, type TesterCardSource } from "./tester-card.js";
export {
  CSV_TABLES,
  csvReport,
  markdownReport,
  warningsLine,
  type CsvTable,
  type MarkdownOptions,
} from "./text-report.js";
export { printable, visible, visibleJson } from "./visible.js";
