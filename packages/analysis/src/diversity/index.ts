export { clusterRecords, effectiveCount, leaderClusters, meanPairwiseDistance } from "./clusters.js";
export { dot } from "./dot.js";
export { measureDiversity, type DiversityOptions } from "./measure-diversity.js";
