import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { ChatTemplate, Tokenizer } from "@astra-rl/lm";
import { expect, test } from "vitest";
import { parseEvaluationRecord, parseGraphLines, parseRunRecord, type GraphRecord } from "@astra-rl/records";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();
const familyFolder = (name: string) =>
  fileURLToPath(new URL(`../../../lm/test/golden/families/${name}`, import.meta.url));

const CHAT =
  "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}" +
  "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";
/** As short as it must be for a whole conversation to fit the window of a small model. */
const SHORT =
  "{% for m in messages %}<|start_header_id|>{{ m.role[0] }}\n{{ m.content }}<|eot_id|>{% endfor %}" +
  "{% if add_generation_prompt %}<|start_header_id|>a\n{% endif %}";
const DATED = `{% if messages[0].role == 'system' %}{{ strftime_now('%d %b %Y') }}: {% endif %}${CHAT}`;
/** A template that writes nothing of its own. */
const NOTHING = "{% for m in messages %}{{ m.content }}{% endfor %}";

/** A copy of a checkpoint with another chat template. */
function chatCheckpoint(name: string, source: string, template: string): string {
  cpSync(source, path(name), { recursive: true });
  writeFileSync(path(name, "chat_template.jinja"), template);
  return path(name);
}

function configuration(models: string, more = ""): string {
  writeFileSync(path("prompts.json"), JSON.stringify(["The train is late.", "Who are you?"]));
  writeFileSync(
    path("run.yaml"),
    `models: {${models}}
prompts: {train: prompts.json, dev: prompts.json, test: prompts.json}
scorer: {type: keyword, entries: [{pattern: "[a-m]", weight: 0.6}]}
sampler: {width: 2, depth: 3}
generation:
  tester: {maxNewTokens: 6}
  target: {maxNewTokens: 6}
training: {trainingSteps: 4, schedule: constant, numEpisodesPerExperience: 2, evaluateEvery: 2, batchSize: 4, checkpointEvery: 1, learningRate: 1e-3}
${more}`,
  );
  return path("run.yaml");
}

const withoutTimes = (text: string) => text.replaceAll(/"time\/[^"]*":[^,}]*,?/gu, "");

type Turn = GraphRecord["children"][number];

/** Each turn with the texts of its path: the prompt, then probes and responses in turn. */
function* turnsOf(graph: GraphRecord): Generator<{ turn: Turn; texts: string[] }> {
  const walk = function* (
    turns: readonly Turn[],
    texts: string[],
  ): Generator<{ turn: Turn; texts: string[] }> {
    for (const turn of turns) {
      yield { turn, texts: [...texts, turn.probe] };
      yield* walk(turn.children, [...texts, turn.probe, turn.response]);
    }
  };
  yield* walk(graph.children, [graph.context]);
}

test("chat models read, turn by turn, the recorded texts as rendered by their templates", async () => {
  const folder = chatCheckpoint("chat", familyFolder("llama32-new-spelling"), SHORT);
  const run = configuration(
    `tester: {path: ${folder}, system: "Ask."}, target: {path: ${folder}, format: chat, system: "Talk."}`,
  );
  const { code, err, json } = await runCommand("rollout", run, "--episodes", "2", "--json", "--tokens");
  expect(code).toBe(0);
  expect(err).toContain("Chat template of the checkpoint: tester, target");
  const tokenizer = await Tokenizer.load(folder);
  const template = ChatTemplate.of(tokenizer)!;
  const decode = (ids: readonly number[]) => tokenizer.decode(ids, { skipSpecialTokens: false });
  let count = 0;
  for (const graph of json<GraphRecord>()) {
    for (const { turn, texts } of turnsOf(graph)) {
      const { tester, target } = turn.tokens!;
      const [prompt, ...said] = texts;
      const asked = [`${prompt}\n\n${said[0]}`, ...said.slice(1)];
      const messages = (system: string, contents: readonly string[]) => [
        { role: "system", content: system },
        ...contents.map((content, at) => ({ role: at % 2 === 0 ? "user" : "assistant", content })),
      ];
      const written = (system: string, contents: readonly string[]) =>
        template.render(messages(system, contents), { addGenerationPrompt: true });
      expect(decode([...target!.context, ...target!.heard])).toBe(written("Talk.", asked));
      expect(decode(tester!.context)).toBe(written("Ask.", texts.slice(0, -1)));
      expect(decode(target!.probe)).toBe(turn.probe);
      count++;
    }
  }
  expect(count).toBe(2 * (2 + 4 + 8));
});

test("a template that adds no text gives the run of the plain format, with as many tokens", async () => {
  const folder = chatCheckpoint("chat", goldenFolder, NOTHING);
  const train = async (name: string, format: string) => {
    const run = configuration(`tester: {path: ${folder}, ${format}}, target: ${goldenFolder}`);
    const result = await runCommand("train", run, "--run-dir", path(`run-${name}`), "--quiet");
    expect(result).toMatchObject({ code: 0 });
    return ["metrics.jsonl", "graphs.jsonl"].map((file) =>
      withoutTimes(readFileSync(path(`run-${name}`, file), "utf8")),
    );
  };
  const plain = await train("plain", "format: plain");
  expect(await train("template", "history: template")).toEqual(plain);
  expect(await train("verbatim", "history: verbatim")).toEqual(plain);
});

test("a chat run keeps its formats and its date, and resumes exactly", async () => {
  const folder = chatCheckpoint("chat", familyFolder("llama32-new-spelling"), DATED);
  const section = `{path: ${folder}, system: "You ask."}`;
  const run = configuration(
    `tester: ${section}, target: ${section}, date: 2026-02-03, lora: {targetModules: [q_proj]}`,
  );
  const train = (name: string, ...args: string[]) =>
    runCommand("train", run, "--run-dir", path(name), "--quiet", ...args);
  expect(await train("whole")).toMatchObject({ code: 0 });
  expect((await train("cut", "--set", "training.trainingSteps=2")).code).toBe(0);
  expect((await train("cut", "--resume")).code).toBe(0);
  for (const name of ["metrics.jsonl", "graphs.jsonl", "evaluations.jsonl"]) {
    const [cut, whole] = ["cut", "whole"].map((each) => readFileSync(path(each, name), "utf8"));
    expect(withoutTimes(cut!)).toBe(withoutTimes(whole!));
  }
  const { formats } = parseRunRecord(readFileSync(path("whole", "run.json"), "utf8"));
  expect(formats).toEqual({ tester: "chat", target: "chat" });
  const other = await train(
    "cut",
    "--resume",
    "--set",
    "models.date=2026-02-04",
    "--set",
    "training.trainingSteps=5",
  );
  expect(other.err).toContain('models.date was "2026-02-03" and is now "2026-02-04"');

  // The trained tester uses the section's format.
  const resolved = path("whole", "config.resolved.yaml");
  const trained = path("whole", "checkpoints", "last");
  const evaluation = await runCommand("eval", resolved, "--tester", trained, "--json", "--quiet");
  const { measured } = parseEvaluationRecord(evaluation.out);
  expect(measured).toMatchObject({
    tester: { model: trained },
    formats: { tester: "chat", target: "chat" },
    date: "2026-02-03",
  });
  expect(parseGraphLines(readFileSync(path("whole", "graphs.jsonl"), "utf8"))).toHaveLength(8);
});

test("a run without a date keeps the day on which it started", async () => {
  const folder = chatCheckpoint("chat", familyFolder("llama32-new-spelling"), DATED);
  const run = configuration(`tester: ${folder}, target: ${folder}`);
  await runCommand("train", run, "--run-dir", path("run"), "--quiet");
  const resolved = readFileSync(path("run", "config.resolved.yaml"), "utf8");
  expect(resolved).toMatch(/^ {2}date: \d{4}-\d{2}-\d{2}$/mu);
});

test("a base model read with a chat template causes a warning, a missing template an error", async () => {
  const base = chatCheckpoint("base", familyFolder("llama32-new-spelling"), CHAT);
  const generation = JSON.parse(readFileSync(path("base", "generation_config.json"), "utf8")) as object;
  const config = JSON.parse(readFileSync(path("base", "config.json"), "utf8")) as object;
  writeFileSync(path("base", "generation_config.json"), JSON.stringify({ ...generation, eos_token_id: 1 }));
  writeFileSync(path("base", "config.json"), JSON.stringify({ ...config, eos_token_id: 1 }));
  const run = (models: string) => runCommand("rollout", configuration(models));
  const warned = await run(`tester: ${goldenFolder}, target: ${base}`);
  expect(warned.code).toBe(0);
  expect(warned.err).toMatch(
    /the target's chat template ends a message with <\|eot_id\|>.*may be a base model/u,
  );
  expect(warned.err).not.toContain("the tester's chat template");
  for (const option of ["format: chat", "system: Ask."]) {
    const { code, err } = await run(`tester: ${goldenFolder}, target: {path: ${goldenFolder}, ${option}}`);
    expect(code).toBe(2);
    expect(err).toMatch(/target: .* needs a chat template, but the checkpoint has none/u);
  }
  const mixed = await run(`tester: ${goldenFolder}, target: {path: ${base}, format: plain, thinking: true}`);
  expect(mixed).toMatchObject({ code: 2 });
  expect(mixed.err).toContain("models.target.thinking is an option of format: chat");
});

test("plain models are read with labels and separators", async () => {
  const run = configuration(
    `tester: ${goldenFolder}, target: {path: ${goldenFolder}, format: plain, labels: {tester: "User: ", target: "Bot: "}, separator: "\\n"}`,
  );
  const { code, json } = await runCommand("rollout", run, "--json", "--tokens");
  expect(code).toBe(0);
  const tokenizer = await Tokenizer.load(goldenFolder);
  const [graph] = json<GraphRecord>();
  const { probe, tokens } = graph!.children[0]!;
  const { context, heard } = tokens!.target!;
  expect(tokenizer.decode([...context, ...heard])).toBe(`${graph!.context}\nUser: ${probe}\nBot: `);
});
