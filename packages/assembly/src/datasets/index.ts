export {
  ADVBENCH_GOALS,
  ADVBENCH_TARGETS,
  ADVBENCH_TASKS,
  CONVOKIT_REDDIT_DEV,
  CONVOKIT_REDDIT_TEST,
  CONVOKIT_REDDIT_TRAIN,
  NAMED_SETS,
  type NamedSet,
} from "./named-sets.js";
export {
  goalOfPrompt,
  goalsOf,
  pairGoals,
  promptAsText,
  promptWithGoal,
  refuseSeenGoals,
  textsSeen,
} from "./goal-prompts.js";
export {
  checkPrompts,
  parsePrompts,
  promptText,
  readPromptFile,
  type Prompt,
  type PromptFileOptions,
} from "./prompt-file.js";
export {
  datasetSettings,
  hubFile,
  isRemotePrompts,
  localPrompts,
  readPrompts,
  type DatasetSettings,
  type PromptSourceOptions,
} from "./prompt-source.js";
