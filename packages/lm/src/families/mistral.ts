import { decoderFamily, slidingWindowOf } from "./decoder-family.js";

/** Mistral (Jiang et al. 2023, arXiv 2310.06825): Llama's decoder with a sliding window in every layer. */
export const mistral = decoderFamily({
  architectures: ["MistralForCausalLM"],
  modelType: "mistral",
  traits: (fields) => {
    const slidingWindow = slidingWindowOf(fields);
    return { slidingWindow, slides: () => slidingWindow !== null };
  },
});
