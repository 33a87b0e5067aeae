// Texts in, vectors out. Must not depend on rewards or evaluations.
export {
  HashedNgramEmbedder,
  hashedNgramEmbedderKind,
  type HashedNgramEmbedderOptions,
} from "./hashed-ngram-embedder.js";
export { SentenceEncoder, sentenceEncoderKind, type SentenceEncoderOptions } from "./sentence-encoder.js";
