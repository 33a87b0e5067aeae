// Files that are whole or not there: atomic replacement, and what a disk's refusal means. Must not know tensors.
export { checkReplaceableFile, writeFileAtomic } from "./atomic-file.js";
export { addDigests, checkDigest, DIGESTS, fileDigest, writeDigests } from "./digests.js";
export { recoverFolder, replaceFolder, type ReplaceFolderOptions } from "./atomic-folder.js";
export { checkRegular, requireRegularFiles } from "./regular-file.js";
export { makeFolder } from "./make-folder.js";
export { diskError, diskReason, explainDiskErrors, explainDiskErrorsAsync } from "./disk-error.js";
