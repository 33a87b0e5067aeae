import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Device } from "@astra-rl/torch";
import {
  parseGraphLines,
  parseMetricsLines,
  type GraphRecord,
} from "../../packages/astra-rl/src/records/index.js";
import { embeddedConfigurationPath } from "../../packages/astra-rl/src/assembly/index.js";
import { main } from "../../packages/astra-rl/src/cli/index.js";
import { captured } from "../../packages/astra-rl/test/cli/captured.js";
import { figure, guarded, within, type Row } from "./table.js";

const ALGORITHMS = ["dpo", "ipo", "orpo", "ppo", "a2c", "reinforce", "rloo", "grpo"];

/** The command line on the embedded world: rollouts, two steps of every algorithm, a resumed run, and the demo. */
export async function checkRuns(device: Device): Promise<Row[]> {
  const folder = mkdtempSync(join(tmpdir(), "check-cuda-"));
  const on = (place: Device) => ["--set", `models.device=${place}`, "--set", "models.dtype=float32"];
  const train = async (name: string, place: Device, ...more: string[]): Promise<string> => {
    const path = join(folder, name);
    const file = embeddedConfigurationPath(name.split("-")[0]!);
    const set = ["training.evaluateEvery=100", "training.checkpointEvery=1"].flatMap((each) => [
      "--set",
      each,
    ]);
    await command("train", file, "--run-dir", path, ...on(place), ...set, ...more);
    return path;
  };
  const steps = (count: number) => ["--set", `training.trainingSteps=${count}`];
  try {
    const rows: Row[] = [];
    rows.push(
      ...(await guarded("rollouts", async () => {
        const rollout = async (place: Device, ...more: string[]) =>
          parseGraphLines(
            await command(
              "rollout",
              embeddedConfigurationPath(),
              "--episodes",
              "32",
              "--json",
              ...on(place),
              ...more,
            ),
          );
        const [here, there] = [await rollout("cpu"), await rollout(device)];
        await rollout(device, "--set", "models.dtype=bfloat16");
        const same = here.filter((graph, at) => texts(graph) === texts(there[at]!)).length;
        return [figure("rollouts: trees with the CPU's texts, float32", `${same} of ${here.length}`)];
      })),
    );
    for (const name of ALGORITHMS) {
      rows.push(
        ...(await guarded(`training: ${name}`, async () => {
          const [here, there] = [
            await train(`${name}-cpu`, "cpu", ...steps(2)),
            await train(`${name}-device`, device, ...steps(2)),
          ].map(metricsOf);
          return [0, 1].map((step) => {
            const [a, b] = [here![step]!, there![step]!];
            const [loss, other] = [Number(a["loss"]), Number(b["loss"])];
            const tokens = Number(b["tokens/tester/read"]) - Number(a["tokens/tester/read"]);
            const difference = Math.abs(loss - other) / Math.max(0.01, Math.abs(loss));
            // Where a draw fell just beside another, a tree differs, and the losses are of other texts.
            if (tokens !== 0)
              return figure(
                `training: ${name}, step ${step + 1}`,
                `${other} against ${loss}, of other texts`,
              );
            return within(`training: ${name}, step ${step + 1}: loss against the CPU's`, difference, 1e-3);
          });
        })),
      );
    }
    rows.push(
      ...(await guarded("training: adapter, bfloat16", async () => {
        const lora = [
          "models.lora.rank=4",
          "models.lora.targetModules=[c_attn]",
          "models.dtype=bfloat16",
          "models.updateDtype=bfloat16",
        ];
        const path = await train(
          "dpo-adapter",
          device,
          ...steps(2),
          ...lora.flatMap((each) => ["--set", each]),
        );
        const losses = metricsOf(path).map(({ loss }) => Number(loss));
        return [
          {
            what: "training: adapter, bfloat16",
            found: `losses ${losses.join(", ")}`,
            holds: losses.every(Number.isFinite),
          },
        ];
      })),
    );
    rows.push(
      ...(await guarded("training: two processes", async () => {
        const [alone, together] = [
          await train("ppo-alone", device, ...steps(2)),
          await train("ppo-together", device, ...steps(2), "--quiet", "--processes", "2"),
        ].map((path) => metricsOf(path)[0]!);
        const [loss, other] = [Number(alone!["loss"]), Number(together!["loss"])];
        const difference = Math.abs(loss - other) / Math.max(0.01, Math.abs(loss));
        return [within("training: ppo, two processes: first loss against one process's", difference, 1e-3)];
      })),
    );
    rows.push(
      ...(await guarded("resume", async () => {
        const whole = await train("dpo-whole", device, ...steps(4));
        const parts = await train("dpo-parts", device, ...steps(2));
        await train("dpo-parts", device, ...steps(4), "--resume");
        const weights = (path: string) => readFileSync(join(path, "checkpoints/last/model.safetensors"));
        const equal = weights(whole).equals(weights(parts));
        return [
          { what: "resumed = uninterrupted", found: equal ? "byte for byte" : "other weights", holds: equal },
        ];
      })),
    );
    rows.push(
      ...(await guarded("demo", async () => {
        const began = performance.now();
        const out = await command(
          "demo",
          "--run-dir",
          join(folder, "demo"),
          "--json",
          "--set",
          `models.device=${device}`,
        );
        const seconds = (performance.now() - began) / 1000;
        const [before, after] = ["before", "after"].map(
          (when) =>
            (JSON.parse(out) as Record<string, { harmless_probe_success_rate: number }>)[when]!
              .harmless_probe_success_rate,
        );
        const found = `${(100 * before!).toFixed(1)} → ${(100 * after!).toFixed(1)} % in ${seconds.toFixed(0)} s`;
        return [{ what: "demo: success with harmless probes", found, holds: after! > 2 * before! }];
      })),
    );
    return rows;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function command(...args: string[]): Promise<string> {
  const { streams, out, err } = captured();
  const code = await main(args, streams);
  if (code !== 0)
    throw new Error(`astra-rl ${args.join(" ")}: exit code ${code}: ${err().trim().split("\n").at(-1)}`);
  return out();
}

const metricsOf = (folder: string) => parseMetricsLines(readFileSync(join(folder, "metrics.jsonl"), "utf8"));

/** All texts of a tree in order. */
const texts = (graph: Pick<GraphRecord, "children">): string =>
  JSON.stringify(graph.children, (key, value: unknown) =>
    Array.isArray(value) || ["", "probe", "response", "children"].includes(key) || /^\d+$/u.test(key)
      ? value
      : undefined,
  );
