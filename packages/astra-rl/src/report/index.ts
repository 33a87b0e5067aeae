// Turns records into readable reports, with model output escaped. Must not know: models, tensors, how a run works.
export { auditReport } from "./audit-report.js";
export { comparisonReport, evaluationReport, type ComparisonReportOptions } from "./comparison-report.js";
export { conversationLines, foundConversations, foundReport } from "./conversations.js";
export { percent, plain, pValue, signed } from "./figures.js";
export { embeddedJson, htmlReport } from "./html-report.js";
export { linesOf, readReport, type ReadReportOptions } from "./read-report.js";
export { table } from "./table.js";
export { testerCard, type TesterCardSource } from "./tester-card.js";
export { CSV_TABLES, csvReport, markdownReport, type CsvTable, type MarkdownOptions } from "./text-report.js";
export { printable, visible, visibleJson } from "./visible.js";
