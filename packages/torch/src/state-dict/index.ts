/**
 * Reads PyTorch weight files, written by `torch.save(model.state_dict(), …)`, as data.
 *
 * This folder must not execute anything from a file, nor know what the names in a file mean.
 */
export { openStateDict, StateDictFile } from "./state-dict-file.js";
