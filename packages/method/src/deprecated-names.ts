// The names that earlier versions of the Python toolbox used, for migrating code. Nothing else in this
// project uses them; docs/migrating-from-python.md has the table.
import { Sampler, ASTSampler } from "./sampler/index.js";
import { Scorer } from "./scorer/index.js";
import { System, ValueFunctionSystem, ASTSystem, HFASTSystem, HFEvaluationSystem } from "./system/index.js";

export {
  /** @deprecated use System */
  System as Problem,
  /** @deprecated use ValueFunctionSystem */
  ValueFunctionSystem as ValueFunctionProblem,
  /** @deprecated use ASTSystem */
  ASTSystem as ASTProblem,
  /** @deprecated use HFASTSystem */
  HFASTSystem as HFASTProblem,
  /** @deprecated use HFEvaluationSystem */
  HFEvaluationSystem as HFEvaluationProblem,
  /** @deprecated use Sampler */
  Sampler as Environment,
  /** @deprecated use ASTSampler */
  ASTSampler as ASTEnvironment,
  /** @deprecated use Scorer */
  Scorer as Moderator,
};
