export {
  auditEvaluation,
  auditItems,
  type Audit,
  type AuditItem,
  type ScorerAudit,
} from "./audit-evaluation.js";
export { auditReport } from "./audit-report.js";
