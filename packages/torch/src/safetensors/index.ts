/**
 * Tensors in files: the safetensors format, read and written atomically.
 *
 * This folder must not know modules, optimizers or what the names in a file mean.
 */
export { openSafetensors, SafetensorsFile } from "./safetensors-file.js";
export { writeSafetensors } from "./writer.js";
export type { SafetensorsEntry } from "./header.js";
