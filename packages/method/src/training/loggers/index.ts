export { ConsoleLogger, consoleKind, type ConsoleLoggerOptions } from "./console-logger.js";
export { JSONLinesLogger, jsonLinesKind } from "./jsonl-logger.js";
export { parametersOf, scalarsOf } from "./logged-values.js";
export type { LoggedRun, LoggedValues, MetricsLogger } from "./metrics-logger.js";
export { MetricsLoggers, type MetricsLoggersOptions } from "./metrics-loggers.js";
