/**
 * Building blocks of networks: modules that own parameters, their initial values, and gradient clipping.
 *
 * This folder must not know optimizers, files or any whole model; a model's file composes these pieces.
 */
export { Module } from "./module.js";
export { Linear, type LinearOptions } from "./linear.js";
export { Embedding, type EmbeddingOptions } from "./embedding.js";
export { LayerNorm, type LayerNormOptions } from "./layer-norm.js";
export { Dropout } from "./dropout.js";
export {
  normalInitialiser,
  onesInitialiser,
  uniformInitialiser,
  zerosInitialiser,
  type Initialiser,
} from "./initialisers.js";
export { clipGradNorm_, type ClipGradNormOptions } from "./clip-grad-norm.js";
