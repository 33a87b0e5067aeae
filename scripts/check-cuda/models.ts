import { AdamW, clipGradNorm_, liveTensors, noGrad, scope, type Device, type DType } from "@astra-rl/torch";
import {
  GenerationSession,
  LoRA,
  classLogits,
  loadCausalLM,
  loadSequenceClassifier,
  tokenLogprobs,
  type CausalLM,
  type Generation,
  type Sampling,
} from "@astra-rl/lm";
import {
  goldenCausal,
  goldenClassifiers,
  type GoldenCausal,
} from "../../packages/lm/test/golden/families.js";
import { difference, goldenGradients, summary } from "../../packages/lm/test/golden/gradients.js";
import { guarded, within, type Row } from "./table.js";

/** Bounds are those of the tests on the CPU, where every one of these has a test. */
export async function checkModels(device: Device): Promise<Row[]> {
  const found = new Map<string, { worst: number; bound: number; where: string }>();
  const note = (what: string, where: string, value: number, bound: number) => {
    const before = found.get(what);
    if (before === undefined || !(value <= before.worst)) found.set(what, { worst: value, bound, where });
  };
  const failed: Row[] = [];
  for (const { name, folder, expected } of goldenCausal) {
    const check = () =>
      checkFamily(device, folder, expected, (what, value, bound) => note(what, name, value, bound));
    failed.push(...(await guarded(name, check)));
    const gradients = () =>
      checkGradients(device, name, folder, (what, value, bound) => note(what, name, value, bound));
    failed.push(...(await guarded(`${name}: gradients`, gradients)));
  }
  for (const { name, folder, expected } of goldenClassifiers) {
    failed.push(
      ...(await guarded(name, async () => {
        const loaded = await loadSequenceClassifier(folder, { device });
        const logits = classLogits(
          loaded,
          expected.rows.map(({ text }) => text),
        );
        loaded.model.dispose();
        note(
          "classifiers: logits, float32, against transformers",
          name,
          worst(
            logits,
            expected.rows.map((row) => row.logits),
          ),
          1e-4,
        );
        return [];
      })),
    );
  }
  return [
    ...[...found].map(([what, { worst: value, bound, where }]) =>
      within(`${what} (worst: ${where})`, value, bound),
    ),
    ...failed,
  ];
}

type Note = (what: string, value: number, bound: number) => void;

const worst = (some: readonly (readonly number[])[], others: readonly (readonly number[])[]) =>
  Math.max(...some.flatMap((row, at) => row.map((value, k) => Math.abs(value - (others[at]![k] ?? 0)))));

async function checkFamily(
  device: Device,
  folder: string,
  expected: GoldenCausal,
  note: Note,
): Promise<Row[]> {
  const before = liveTensors();
  const { model, tokenizer } = await loadCausalLM(folder, { device });
  const onProcessor = (await loadCausalLM(folder)).model;
  const rows = expected.pairs.map(({ contextIds, continuationIds }) => ({
    context: contextIds,
    continuation: continuationIds,
  }));
  const reference = expected.pairs.map(({ logprobs }) => logprobs);
  const values = (lm: CausalLM, packed: boolean) =>
    noGrad(() => scope(() => tokenLogprobs(lm, rows, { packed }).toArray())) as number[][];
  note("log-probabilities, float32, against transformers", worst(values(model, false), reference), 2e-4);
  note("packed = row by row", worst(values(model, true), values(model, false)), 5e-5);
  const half = model.copy("bfloat16");
  const distances = values(half, true).flatMap((row, at) =>
    reference[at]!.map((value, k) => Math.abs(row[k]! - value)),
  );
  half.dispose();
  note(
    "log-probabilities, bfloat16: mean distance",
    distances.reduce((sum, each) => sum + each, 0) / distances.length,
    2e-2,
  );

  const greedy = expected.greedy.slice(0, 4);
  const wrong = greedy.filter(({ ids, greedy: wanted }) => {
    using session = GenerationSession.open(model, tokenizer, [ids], { endIds: [] });
    const { ids: said } = session.generate({ maxNewTokens: wanted.length, greedy: true });
    return JSON.stringify(said[0]) !== JSON.stringify(wanted);
  });
  note("greedy texts that differ from transformers'", wrong.length, 0);

  const sampling: Sampling = {
    maxNewTokens: 16,
    temperature: 0.9,
    topK: 40,
    topP: 0.9,
    recordBehaviour: true,
  };
  const sampled = (lm: CausalLM): Generation => {
    using session = GenerationSession.open(
      lm,
      tokenizer,
      rows.map(({ context }) => context),
      { endIds: [] },
    );
    const keys = rows.map((_, node) => ({ seed: 3, stream: "tester", episode: 0, node }));
    using forked = session.fork(rows.map((__, row) => row));
    return forked.generate(sampling, keys);
  };
  const [here, there] = [sampled(onProcessor), sampled(model)];
  const differing = here.ids.filter(
    (ids, row) => JSON.stringify(ids) !== JSON.stringify(there.ids[row]),
  ).length;
  note("sampled texts that differ from the CPU's, share", differing / here.ids.length, 0);
  if (differing === 0)
    note("recorded log-probabilities against the CPU's", worst(there.logprobs, here.logprobs), 1e-4);
  const again = noGrad(() =>
    scope(() =>
      tokenLogprobs(
        model,
        there.ids.map((ids, row) => ({ context: rows[row]!.context, continuation: ids })),
      ).toArray(),
    ),
  ) as number[][];
  note("recorded = recomputed log-probabilities", worst(there.logprobs, again), 1e-4);

  model.dispose();
  onProcessor.dispose();
  note("tensors that are left", liveTensors() - before, 0);
  return [];
}

async function checkGradients(device: Device, name: string, folder: string, note: Note): Promise<Row[]> {
  const { rows, models } = goldenGradients;
  const golden = models[name]!;
  const types: [DType, number][] = [
    ["float64", 2e-6],
    ["float32", 1e-4],
  ];
  for (const [dtype, bound] of types) {
    const { model } = await loadCausalLM(folder, { dtype, device });
    const parameters = model.namedParameters();
    for (const parameter of parameters.values()) parameter.requiresGrad_();
    scope(() => tokenLogprobs(model, rows).sum().neg().backward());
    for (const [key, parameter] of parameters) {
      note(
        `gradients, ${dtype}, against transformers`,
        difference(summary(parameter.grad!), golden.gradients[key]!),
        bound,
      );
    }
    const optimizer = new AdamW([...parameters.values()], { learningRate: 1e-3 });
    scope(() => noGrad(() => void clipGradNorm_([...parameters.values()], 1)));
    optimizer.step();
    optimizer.dispose();
    model.dispose();
  }
  // An adapter on frozen weights in bfloat16: what a large tester is trained as.
  const { model } = await loadCausalLM(folder, { dtype: "bfloat16", device });
  const { targetModules } = golden.lora;
  const adapter = LoRA.create(model.projections(), { rank: 2, alpha: 4, targetModules }, { seed: 0, device });
  scope(() => tokenLogprobs(model.withAdapter(adapter), rows).sum().neg().backward());
  const norms = [...adapter.namedParameters()]
    .filter(([key]) => key.includes("lora_B"))
    .map(([, matrix]) => summary(matrix.grad!)[0]);
  note("adapters without a gradient", norms.filter((norm) => !(norm > 0)).length, 0);
  adapter.dispose();
  model.dispose();
  return [];
}
