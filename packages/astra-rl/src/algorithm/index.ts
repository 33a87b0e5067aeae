// Graphs → steps → batch → loss and logs: preference optimization between siblings, and policy gradients. Must not
// depend on samplers, models, optimizers or files.
export * from "./policy-gradient/index.js";
export * from "./preference/index.js";
