import { join } from "node:path";
import { UsageError, checkDigest } from "@astra-rl/base";
import {
  dispose,
  dropout,
  keep,
  linear,
  noGrad,
  openSafetensors,
  rand,
  scope,
  zeros,
  Generator,
  type Device,
  type Tensor,
} from "@astra-rl/torch";
import { readJsonIfThere } from "../json-fields.js";
import { checkStored, finite } from "../read-parameters.js";
import { resolveCheckpoint, type HubOptions } from "../resolve-checkpoint.js";
import { saveFolder } from "../weight-files.js";
import type { Adapter, Projection } from "./adapter.js";
import { checkConfiguration, parsePeftConfiguration, type LoRAConfiguration } from "./lora-configuration.js";

/** Prefix that PEFT adds to the module names of the adapted model. */
const PREFIX = "base_model.model.";
const ADAPTER_CONFIGURATION = "adapter_config.json";

/**
 * Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): y = W x + (alpha / rank) · B A x with W frozen.
 *
 * A is initialized uniformly in ±1/√input, PEFT's default, and B with zeros, so that a new adapter changes nothing.
 * Loaded and saved in PEFT's format (adapter_config.json, adapter_model.safetensors).
 */
export class LoRA implements Adapter {
  readonly #matrices: Map<string, { a: Tensor; b: Tensor }>;
  /** True in training: only then is dropout applied. */
  training = false;

  private constructor(
    readonly configuration: Required<LoRAConfiguration>,
    matrices: Map<string, { a: Tensor; b: Tensor }>,
    private readonly projections: ReadonlyMap<string, Projection>,
  ) {
    this.#matrices = matrices;
  }

  /** Creates an adapter for a model's projections: float32, trainable; the same seed gives the same matrices. */
  static create(
    projections: ReadonlyMap<string, Projection>,
    configuration: LoRAConfiguration,
    options: { seed: number; device?: Device },
  ): LoRA {
    const { seed, device = "cpu" } = options;
    const complete = checkConfiguration("LoRA", configuration);
    const chosen = chooseProjections("LoRA", projections, complete.targetModules);
    const matrices = keep(
      scope(() => {
        const generator = new Generator(seed, "cpu");
        const made = new Map(
          chosen.map(([name, { input, output }]) => {
            const bound = 1 / Math.sqrt(input);
            const a = rand([complete.rank, input], { generator })
              .mul(2 * bound)
              .sub(bound)
              .to(device)
              .requiresGrad_();
            const b = zeros([output, complete.rank], { device }).requiresGrad_();
            return [name, { a, b }] as const;
          }),
        );
        generator.dispose();
        return made;
      }),
    );
    return new LoRA(complete, matrices, projections);
  }

  /**
   * The configuration of the adapter in a folder; null if there is none.
   *
   * @throws UsageError for an unsupported kind
   */
  static async configurationOf(directory: string): Promise<Required<LoRAConfiguration> | null> {
    const fields = await readJsonIfThere(join(directory, ADAPTER_CONFIGURATION));
    return fields && parsePeftConfiguration(fields);
  }

  /**
   * Loads an adapter saved by PEFT or {@link save}.
   *
   * @param source a folder, or a model id "owner/name[@revision]" if no such folder exists
   */
  static async load(
    source: string,
    projections: ReadonlyMap<string, Projection>,
    options: { device?: Device; hub?: HubOptions } = {},
  ): Promise<LoRA> {
    const { device = "cpu", hub } = options;
    const directory = await resolveCheckpoint(source, hub);
    const configurationPath = join(directory, ADAPTER_CONFIGURATION);
    const configuration = await LoRA.configurationOf(directory);
    if (configuration === null)
      throw new UsageError(
        "missing-configuration",
        `${configurationPath}: an adapter needs this file, but it is missing`,
      );
    const chosen = chooseProjections(configurationPath, projections, configuration.targetModules);
    const path = join(directory, "adapter_model.safetensors");
    checkDigest(path);
    const file = openSafetensors(path);
    try {
      const matrices = keep(
        scope(() => {
          const read = (name: string, part: string, shape: readonly number[]) => {
            const key = `${PREFIX}${name}.lora_${part}.weight`;
            checkStored(path, key, file.tensors.get(key), shape, "according to this model");
            const matrix = noGrad(() => finite(file.read(key), path, key, { dtype: "float32", device }));
            return matrix.requiresGrad_();
          };
          const { rank } = configuration;
          return new Map(
            chosen.map(([name, { input, output }]) => {
              return [
                name,
                { a: read(name, "A", [rank, input]), b: read(name, "B", [output, rank]) },
              ] as const;
            }),
          );
        }),
      );
      const extra = [...file.tensors.keys()].filter((key) => !matrices.has(moduleOf(key)));
      if (extra.length > 0) {
        dispose([...matrices.values()]);
        throw new UsageError(
          "unexpected-tensor",
          `${path}: contains "${extra[0]}", which belongs to no target module of this model`,
        );
      }
      return new LoRA(configuration, matrices, projections);
    } finally {
      file.close();
    }
  }

  delta(projection: string, x: Tensor): Tensor | null {
    const matrices = this.#matrices.get(projection);
    if (!matrices) return null;
    const { rank, alpha, dropout: probability } = this.configuration;
    const cast = (weight: Tensor) => (weight.dtype === x.dtype ? weight : weight.to(x.dtype));
    const input = this.training && probability > 0 ? dropout(x, probability, true) : x;
    return linear(linear(input, cast(matrices.a)), cast(matrices.b)).mul(alpha / rank);
  }

  *parameters(prefix: string): Iterable<Tensor> {
    for (const [name, { a, b }] of this.#matrices) {
      if (name.startsWith(prefix)) yield* [a, b];
    }
  }

  namedParameters(): Map<string, Tensor> {
    const named = new Map<string, Tensor>();
    for (const [name, { a, b }] of this.#matrices) {
      named.set(`${PREFIX}${name}.lora_A.weight`, a).set(`${PREFIX}${name}.lora_B.weight`, b);
    }
    return named;
  }

  /**
   * The merged weights W + (alpha / rank) · B A of the adapted projections, in the stored orientation and type of W.
   * The caller owns them.
   */
  merged(parameters: ReadonlyMap<string, Tensor>): Map<string, Tensor> {
    const { rank, alpha } = this.configuration;
    return keep(
      scope(() =>
        noGrad(
          () =>
            new Map(
              [...this.#matrices].map(([name, { a, b }]) => {
                const weight = parameters.get(`${name}.weight`)!;
                const update = b.matmul(a).mul(alpha / rank); // [output, input]
                const oriented = this.projections.get(name)!.transposed ? update.transpose(0, 1) : update;
                return [`${name}.weight`, weight.to("float32").add(oriented).to(weight.dtype)] as const;
              }),
            ),
        ),
      ),
    );
  }

  /**
   * Saves the adapter in PEFT's format; the write is atomic.
   *
   * @param options.baseModel folder or model id of the base, without a revision
   * @param options.baseRevision branch, tag or commit of a base from the hub. Default: none
   */
  async save(directory: string, options: { baseModel: string; baseRevision?: string }): Promise<void> {
    const { rank, alpha, targetModules, dropout: probability } = this.configuration;
    const transposed = [...this.#matrices.keys()].every((name) => this.projections.get(name)!.transposed);
    const configuration = {
      peft_type: "LORA",
      task_type: "CAUSAL_LM",
      base_model_name_or_path: options.baseModel,
      revision: options.baseRevision ?? null,
      r: rank,
      lora_alpha: alpha,
      lora_dropout: probability,
      target_modules: [...targetModules],
      fan_in_fan_out: transposed,
      bias: "none",
      inference_mode: true,
      init_lora_weights: true,
      modules_to_save: null,
    };
    const weights = ["adapter_model.safetensors", this.namedParameters()] as const;
    await saveFolder(directory, weights, { [ADAPTER_CONFIGURATION]: configuration });
  }

  dispose(): void {
    dispose([...this.#matrices.values()].flatMap(({ a, b }) => [a, b]));
  }
}

function moduleOf(key: string): string {
  return key.replace(PREFIX, "").replace(/\.lora_[AB]\.weight$/, "");
}

function chooseProjections(
  where: string,
  projections: ReadonlyMap<string, Projection>,
  targetModules: readonly string[],
): [string, Projection][] {
  const matches = (name: string, target: string) => name === target || name.endsWith(`.${target}`);
  for (const target of targetModules) {
    if ([...projections.keys()].some((name) => matches(name, target))) continue;
    const known = [...new Set([...projections.keys()].map((name) => name.slice(name.lastIndexOf(".") + 1)))];
    throw new UsageError(
      "unknown-projection",
      `${where}: this model has no projection "${target}"; it has ${known.join(", ")}`,
    );
  }
  return [...projections].filter(([name]) => targetModules.some((target) => matches(name, target)));
}
