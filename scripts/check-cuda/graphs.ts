import { execFileSync } from "node:child_process";
import { liveTensors, noGrad, scope, synchronize, type Device, type DType } from "@astra-rl/torch";
import {
  DecodeGraphs,
  GenerationSession,
  initializeGPT2,
  loadCausalLM,
  type CausalLM,
  type Generation,
  type Sampling,
  type Tokenizer,
} from "@astra-rl/lm";
import { time } from "../../benchmarks/measure.js";
import { BUCKET_CAPACITIES, BUCKET_ROWS } from "../../packages/lm/src/generation/static/buckets.js";
import { StaticStep } from "../../packages/lm/src/generation/static/static-step.js";
import { goldenCausal } from "../../packages/lm/test/golden/families.js";
import { goldenFolder } from "../../packages/lm/test/golden/gpt2.js";
import { speedModels } from "./speed.js";
import { announced, figure, within, type Row } from "./table.js";

/** Steps after which the memory is compared. */
const REPLAYS = 1000;

interface Loaded {
  model: CausalLM;
  tokenizer: Tokenizer;
}

/**
 * Decoding with graphs against decoding without, and their speed. The CPU, where the check tests itself, has kernels in other types
 * than float64, and repeats nothing: `graph` compares each step with the first.
 */
export async function checkGraphs(device: Device): Promise<Row[]> {
  const isSmall = device === "cpu";
  const dtype: DType = isSmall ? "float64" : "float32";
  const folders = [{ name: "gpt2", folder: goldenFolder }, ...goldenCausal];
  const rows: Row[] = [];
  let steps = 0;
  const run = Reflect.get(StaticStep.prototype, "run") as (
    ...given: Parameters<StaticStep["run"]>
  ) => unknown;
  Reflect.set(
    StaticStep.prototype,
    "run",
    function (this: StaticStep, ...given: Parameters<StaticStep["run"]>) {
      steps += given[0];
      return run.apply(this, given);
    },
  );
  for (const { name, folder } of isSmall ? folders.slice(0, 3) : folders) {
    rows.push(
      ...(await announced(`graphs: ${name}`, async () => {
        const loaded = await loadCausalLM(folder, { device, dtype });
        try {
          return await checkFamily(name, loaded, device);
        } finally {
          loaded.model.dispose();
        }
      })),
    );
  }
  rows.push(...(await announced("graphs: buckets", () => checkBuckets(device, dtype, isSmall))));
  for (const model of isSmall ? [] : speedModels) {
    rows.push(...(await announced(`graphs: ${model[0]}`, () => measure(model, device))));
  }
  return [...rows, { what: "graphs: steps of decoding", found: String(steps), holds: steps > 0 }];
}

const samplings: Sampling[] = [
  { maxNewTokens: 24, greedy: true },
  { maxNewTokens: 24, temperature: 0.9, topK: 40, topP: 0.9, recordBehaviour: true },
  { maxNewTokens: 24, topP: 0.8, repetitionPenalty: 1.2, minNewTokens: 5 },
];

function generate(
  { model, tokenizer }: Loaded,
  prompts: number[][],
  sampling: Sampling,
  graphs: DecodeGraphs | null,
) {
  using session = GenerationSession.open(model, tokenizer, prompts, { checkInterval: 8, graphs });
  const keys = prompts.map((_, node) => ({ seed: 3, stream: "tester", episode: 0, node }));
  return session.generate(sampling, keys);
}

/** Rows of different lengths within the vocabulary. */
const promptsOf = ({ config }: CausalLM, rows: number, longest: number) =>
  Array.from({ length: rows }, (_, row) =>
    Array.from(
      { length: 1 + ((row * 7) % longest) },
      (__, at) => 1 + ((row * 7919 + at * 104729) % (config.vocabSize - 1)),
    ),
  );

const differing = (some: Generation, others: Generation) =>
  some.ids.filter((ids, row) => JSON.stringify(ids) !== JSON.stringify(others.ids[row])).length;

const apart = (some: Generation, others: Generation) =>
  Math.max(
    0,
    ...some.logprobs.flatMap((row, at) =>
      row.map((value, k) => Math.abs(value - (others.logprobs[at]![k] ?? NaN))),
    ),
  );

/** Ids and log-probabilities with graphs and without, also after the weights have changed in place. */
async function checkFamily(name: string, loaded: Loaded, device: Device): Promise<Row[]> {
  const { model } = loaded;
  const warnings: string[] = [];
  const graphs = new DecodeGraphs(model, { log: (message) => warnings.push(message) });
  let [texts, distance] = [0, 0];
  const compare = () => {
    for (const sampling of samplings) {
      const prompts = promptsOf(model, 9, 20);
      const found = generate(loaded, prompts, sampling, graphs);
      const expected = generate(loaded, prompts, sampling, null);
      texts += differing(found, expected);
      if (differing(found, expected) === 0) distance = Math.max(distance, apart(found, expected));
    }
  };
  try {
    compare();
    scope(() =>
      noGrad(() => {
        for (const parameter of model.namedParameters().values()) parameter.mul_(1.01);
      }),
    );
    compare();
  } finally {
    graphs.dispose();
  }
  return [
    within(`graphs: ${name}: texts that differ from those without`, texts, 0),
    within(`graphs: ${name}: log-probabilities against those without`, distance, 1e-4),
    ...captured(name, device, warnings),
  ];
}

/** On a GPU every step must be captured: launched one by one, it is right, and slow. */
const captured = (name: string, device: Device, warnings: readonly string[]): Row[] =>
  device === "cpu"
    ? []
    : [{ what: `graphs: ${name}: captured`, found: warnings[0] ?? "yes", holds: warnings.length === 0 }];

/** Every bucket, and many replays of one: their results, and what memory they take. */
async function checkBuckets(device: Device, dtype: DType, isSmall: boolean): Promise<Row[]> {
  const { tokenizer, model: golden } = await loadCausalLM(goldenFolder);
  golden.dispose();
  const sizes = { vocabSize: 300, contextLength: 1100, hiddenSize: 32, layers: 2, heads: 2 };
  const model = initializeGPT2(sizes, 0, { device, dtype });
  const warnings: string[] = [];
  const graphs = new DecodeGraphs(model, { log: (message) => warnings.push(message) });
  const loaded = { model, tokenizer };
  const sampling: Sampling = { maxNewTokens: 10, topK: 20 };
  const seen = new Set<string>();
  let texts = 0;
  try {
    for (const capacity of isSmall ? BUCKET_CAPACITIES.slice(0, 2) : BUCKET_CAPACITIES) {
      for (const rows of isSmall ? BUCKET_ROWS.slice(0, 4) : BUCKET_ROWS.toReversed()) {
        const prompts = promptsOf(model, rows, capacity - 12);
        prompts[0] = promptsOf(model, 1, 1)[0]!.concat(Array<number>(capacity - 13).fill(5));
        texts += differing(
          generate(loaded, prompts, sampling, graphs),
          generate(loaded, prompts, sampling, null),
        );
        seen.add(`${rows} ${capacity}`);
      }
    }
    const repeat = () => void generate(loaded, promptsOf(model, 4, 40), sampling, graphs);
    repeat();
    const [tensors, memory] = [liveTensors(), memoryOf(device)];
    const steps = isSmall ? 20 : REPLAYS;
    for (let step = 0; step < steps; step += sampling.maxNewTokens - 1) repeat();
    const grown = memoryOf(device) - memory;
    const bounded = device === "cpu" ? figure : (what: string) => within(what, Math.max(0, grown), 1);
    return [
      within(`graphs: ${seen.size} buckets: texts that differ from those without`, texts, 0),
      within(`graphs: tensors left by ${steps} replays`, liveTensors() - tensors, 0),
      bounded(`graphs: MiB that ${steps} replays add`, grown.toFixed(0)),
      ...captured("buckets", device, warnings),
    ];
  } finally {
    graphs.dispose();
    model.dispose();
  }
}

/** MiB that the device has given out, to any process; on the CPU those of this one. */
function memoryOf(device: Device): number {
  synchronize(device);
  if (device === "cpu") return process.memoryUsage().rss / 2 ** 20;
  const query = [
    "--query-gpu=memory.used",
    "--format=csv,noheader,nounits",
    `--id=${device.split(":")[1] ?? 0}`,
  ];
  return Number(execFileSync("nvidia-smi", query, { encoding: "utf8" }));
}

/** Tokens per second of the sizes of the part "speed", without graphs and with them. */
async function measure([name, create]: (typeof speedModels)[number], device: Device): Promise<Row[]> {
  const { tokenizer, model: golden } = await loadCausalLM(goldenFolder);
  golden.dispose();
  const model = create(device);
  const warnings: string[] = [];
  const graphs = new DecodeGraphs(model, { log: (message) => warnings.push(message) });
  const [rows, length] = [64, 64];
  const prompts = Array.from({ length: rows }, (_, row) =>
    Array.from({ length }, (__, at) => (row * 7919 + at * 104729) % model.config.vocabSize),
  );
  const keys = prompts.map((_, node) => ({ seed: 0, stream: "tester", episode: 0, node }));
  const run = (own: DecodeGraphs | null) => {
    using session = GenerationSession.open(model, tokenizer, prompts, {
      reserve: length,
      endIds: [],
      graphs: own,
    });
    return session.generate({ maxNewTokens: length, topK: 50, topP: 0.9 }, keys);
  };
  try {
    const without = run(null);
    const began = performance.now();
    const found = run(graphs);
    const first = (performance.now() - began) / 1000;
    const [eager, repeated] = [await time(3, () => run(null)), await time(3, () => run(graphs))];
    const rate = (seconds: number) => Math.round((rows * length) / seconds);
    return [
      figure(
        `graphs: ${name}, bfloat16: ${length} new tokens for ${rows} rows, tokens/s`,
        `${rate(eager.median)} without, ${rate(repeated.median)} with; the first time ${first.toFixed(1)} s`,
      ),
      // In bfloat16 sums in another order may decide a draw.
      figure(
        `graphs: ${name}, bfloat16: texts that differ from those without`,
        `${differing(found, without)} of ${rows}`,
      ),
      ...captured(name, device, warnings),
    ];
  } finally {
    graphs.dispose();
    model.dispose();
  }
}
