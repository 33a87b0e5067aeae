/** Operators as functions: those whose schema's first argument is not `self`. The others are methods of Tensor. */
export {
  broadcastTensors,
  cat,
  cdist,
  conv1d,
  cosineSimilarity,
  dropout,
  einsum,
  embedding,
  groupNorm,
  isin,
  layerNorm,
  linear,
  meshgrid,
  searchsorted,
  stack,
  where,
} from "./operators.generated.js";
