export { checkReplaceableFile, writeFileAtomic } from "./atomic-file.js";
export { recoverFolder, replaceFolder, type ReplaceFolderOptions } from "./atomic-folder.js";
export { DIGESTS, addDigests, checkDigest, fileDigest, writeDigests } from "./digests.js";
export { diskError, diskReason, explainDiskErrors, explainDiskErrorsAsync } from "./disk-error.js";
export { makeFolder } from "./make-folder.js";
export { checkRegular, requireRegularFiles } from "./regular-file.js";
