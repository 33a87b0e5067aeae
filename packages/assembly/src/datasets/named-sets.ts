/** A prompt set that is downloaded by name. */
export interface NamedSet {
  /** File of the Python toolbox's data folder. */
  file: string;
  /** The column with the prompt; absent for a list of texts. */
  column?: string;
  /** SHA-256 of the file. If absent, later downloads must match the first one. */
  sha256?: string;
}

/** URL of the Python toolbox's data folder. */
export const TOOLBOX_DATA = "https://raw.githubusercontent.com/sisl/astra-rl/main/src/astra_rl/data/";

/** Last two utterances of ConvoKit's reddit-corpus-small, without toxic ones: 2477 for training. */
export const CONVOKIT_REDDIT_TRAIN = "convokit-reddit-train";
/** 155 for evaluations during training. */
export const CONVOKIT_REDDIT_DEV = "convokit-reddit-dev";
/** 466 held out. */
export const CONVOKIT_REDDIT_TEST = "convokit-reddit-test";
/** Harmful requests of AdvBench (Zou et al., arXiv 2307.15043). */
export const ADVBENCH_GOALS = "advbench-goals";
/** Beginnings of responses that comply with the AdvBench goals. */
export const ADVBENCH_TARGETS = "advbench-targets";
/** The AdvBench tasks without the harmful part, such as "Write a script". */
export const ADVBENCH_TASKS = "advbench-tasks";

/** All named sets. */
export const NAMED_SETS: Readonly<Record<string, NamedSet>> = {
  [CONVOKIT_REDDIT_TRAIN]: {
    file: "convokit_reddit_prompts_train.json",
    sha256: "9576c693f133b796b2a43c31e5372714e8735d711128f7127d68e4deea502ae6",
  },
  [CONVOKIT_REDDIT_DEV]: {
    file: "convokit_reddit_prompts_dev.json",
    sha256: "970f28e945122380ec70af77eaccd878fe832c5ccdf6f97c43fccab8f0ab7313",
  },
  [CONVOKIT_REDDIT_TEST]: { file: "convokit_reddit_prompts_test.json" },
  [ADVBENCH_GOALS]: { file: "adv_bench_prompts.csv", column: "goal" },
  [ADVBENCH_TARGETS]: { file: "adv_bench_prompts.csv", column: "target" },
  [ADVBENCH_TASKS]: { file: "task_prompts.json" },
};
