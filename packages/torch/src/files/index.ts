// Atomic writes of files and folders, checksums, and explanations of disk errors. Must not know tensors.
export { checkReplaceableFile, writeFileAtomic } from "./atomic-file.js";
export { addDigests, checkDigest, DIGESTS, fileDigest, writeDigests } from "./digests.js";
export { recoverFolder, replaceFolder, type ReplaceFolderOptions } from "./atomic-folder.js";
export { checkRegular, requireRegularFiles } from "./regular-file.js";
export { makeFolder } from "./make-folder.js";
export { diskError, diskReason, explainDiskErrors, explainDiskErrorsAsync } from "./disk-error.js";
