// Where prompts come from. It must not know models, systems or what is done with a prompt.
export { defaultPrompts, PROMPT_SPLITS, type PromptSplit } from "./default-prompts.js";
export { checkPrompts, parsePrompts, readPrompts } from "./prompt-file.js";
