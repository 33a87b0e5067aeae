export { bestAdvice, neededRollouts, repeatsAdvice, successError } from "./advice.js";
export { compareTable, tableLines, tableMarkdown, transferTable, type Table } from "./compare-report.js";
export {
  comparisonReport,
  evaluationReport,
  figureRows,
  rewardHack,
  type ComparisonReportOptions,
} from "./comparison-report.js";
export { conversationLines, doubtLines, foundConversations, foundReport } from "./conversations.js";
export {
  between,
  figureRow,
  intervalRow,
  pValue,
  percent,
  plain,
  points,
  signed,
  written,
} from "./figures.js";
export { goalLines, goalMarkdown } from "./goal-report.js";
export { embeddedJson, htmlReport, viewPage } from "./html-report.js";
export { markdownTable, markdownText } from "./markdown.js";
export { EVALUATION_FILES, linesOf, readReport, slim, type ReadReportOptions } from "./read-report.js";
export { searchLines } from "./search-report.js";
export { table } from "./table.js";
export {
  CSV_TABLES,
  csvReport,
  markdownReport,
  type CsvTable,
  type MarkdownOptions,
  warningsLine,
} from "./text-report.js";
export { printable, visible, visibleJson } from "./visible.js";
