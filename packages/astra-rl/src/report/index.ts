// Records as something to read. It must not know models, tensors or how a run is carried out; it takes records and
// gives text, in which whatever a model wrote has been made harmless.
export { comparisonReport, evaluationReport, type ComparisonReportOptions } from "./comparison-report.js";
export { conversationLines, foundConversations, foundReport } from "./conversations.js";
export { percent, plain, pValue, signed } from "./figures.js";
export { table } from "./table.js";
export { visible, visibleJson } from "./visible.js";
