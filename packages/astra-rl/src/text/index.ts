// Texts: read from files, as words, n-grams and features. Must not know: who wrote a text, or what it is measured for.
export { BLEUReferences, selfBLEU } from "./bleu-references.js";
export { foldText, plainText } from "./fold-text.js";
export { hashedNgrams, type HashedNgramOptions } from "./hashed-ngrams.js";
export { distinctNgrams, ngramCounts } from "./ngrams.js";
export { readNamedFile, readStandardInput, readTextFile } from "./read-text-file.js";
export { words } from "./words.js";
