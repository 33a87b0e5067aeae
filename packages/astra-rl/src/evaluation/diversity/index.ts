export { clusterRecords, effectiveCount, leaderClusters, meanPairwiseDistance } from "./clusters.js";
export { measureDiversity, type DiversityOptions } from "./measure-diversity.js";
