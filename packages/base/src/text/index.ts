export { BLEUReferences, selfBLEU } from "./bleu-references.js";
export { foldText, plainText } from "./fold-text.js";
export { hashedNgrams, type HashedNgramOptions } from "./hashed-ngrams.js";
export { distinctNgrams, ngramCounts } from "./ngrams.js";
export {
  decodeText,
  jsonLines,
  readJSONFile,
  readNamedFile,
  readStandardInput,
  readTextFile,
} from "./read-text-file.js";
export { editDistance, sentenceStructure } from "./sentence-structure.js";
export { words } from "./words.js";
