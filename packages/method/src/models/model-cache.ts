import { readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import {
  adapterBase,
  DecodeGraphs,
  loadCausalLM,
  LoRA,
  resolveCheckpoint,
  storedWeightBytes,
  type CausalLM,
  type HubOptions,
  type LoadedCausalLM,
} from "@astra-rl/lm";
import { engineInformation, requireDevice, type Device, type DType } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { fastestTypes } from "./compute-types.js";

/**
 * A Hugging Face folder, a folder with an adapter in PEFT format (its base is loaded with it), a hub model id of either
 * ("owner/name[@revision]"), or a loaded checkpoint (the caller keeps ownership).
 */
export type ModelSource = string | LoadedCausalLM;

/**
 * Compute dtype. "auto" is bfloat16 where it is expected to be faster on this machine at the models' size, else
 * float32.
 */
export type InferenceDType = "auto" | "bfloat16" | "float32";

export interface ModelShelfOptions {
  /** Device of roles without their own setting. Default "cpu". */
  device?: Device;
  /** Device of the tester, also for training. Default: `device`. */
  testerDevice?: Device;
  /** Device of the target; on another device than the tester's, it shares no weights with it. Default: `device`. */
  targetDevice?: Device;
  /** Device of the baseline; on another device than the tester's, it shares no weights with it. Default: `device`. */
  baselineDevice?: Device;
  /** Folder or model id of the tokenizer for tester and baseline, if their checkpoints have none. */
  testerTokenizer?: string;
  /** The same for the target. */
  targetTokenizer?: string;
  /** Compute dtype of rollouts and frozen models. Default "auto". */
  inferenceDtype?: InferenceDType;
  /** Dtype of matrix products in updates; "auto" is resolved independently of rollouts. Default: `inferenceDtype`. */
  updateDtype?: InferenceDType;
  /** "auto": a GPU repeats steps of decoding as CUDA graphs (DecodeGraphs). Default "off". */
  graphs?: "off" | "auto";
  /** How hub models are fetched. Default: from environment variables; warnings go to stderr. */
  hub?: HubOptions;
}

const MODEL_ROLES = ["tester", "target", "baseline"] as const;

export type ModelRole = (typeof MODEL_ROLES)[number];

/** The checkpoints of each role: the main one first, then further ones. */
export type ModelSources = Readonly<Partial<Record<ModelRole, readonly ModelSource[]>>>;

type Identity = string | LoadedCausalLM;

/** Device of each role. @throws UsageError for a device that this process cannot use */
function devicesOf(options: ModelShelfOptions): Readonly<Record<ModelRole, Device>> {
  const { device = "cpu" } = options;
  requireDevice(device, "models.device");
  const entries = MODEL_ROLES.map((role) => {
    const own = options[`${role}Device`] ?? device;
    requireDevice(own, `models.${role}Device`);
    return [role, own] as const;
  });
  return Object.fromEntries(entries) as Record<ModelRole, Device>;
}

/** Loads each checkpoint once for all its roles, and frees what it loaded. */
export class ModelCache {
  readonly #sources: ModelSources;
  /** Source of the tokenizer for checkpoints without one, by checkpoint identity. */
  readonly #tokenizers: ReadonlyMap<Identity, string>;
  readonly #find: FindCheckpoint;
  /** By device, then by checkpoint identity. */
  readonly #frozen = new Map<Device, Map<Identity, LoadedCausalLM>>();
  readonly #owned: { dispose(): void }[] = [];
  readonly #graphs = new Map<CausalLM, DecodeGraphs>();

  private constructor(
    readonly devices: Readonly<Record<ModelRole, Device>>,
    readonly dtype: DType,
    readonly updateDtype: DType,
    sources: ModelSources,
    tokenizers: ReadonlyMap<Identity, string>,
    find: FindCheckpoint,
  ) {
    this.#sources = sources;
    this.#tokenizers = tokenizers;
    this.#find = find;
  }

  /** @param sources the checkpoints, fetched if on the hub; "auto" dtypes depend on their size */
  static async open(options: ModelShelfOptions, sources: ModelSources): Promise<ModelCache> {
    const { inferenceDtype = "auto", testerTokenizer, targetTokenizer } = options;
    const { updateDtype = inferenceDtype } = options;
    const devices = devicesOf(options);
    const given = { tester: testerTokenizer, target: targetTokenizer, baseline: testerTokenizer };
    const find = checkpointFinder(options.hub);
    const local: Record<ModelRole, ModelSource[]> = { tester: [], target: [], baseline: [] };
    const tokenizers = new Map<Identity, string>();
    /** The checkpoints, and in place of adapters their bases. */
    const weights: ModelSource[] = [];
    // The tester comes last, so that its tokenizer setting wins for a checkpoint of several roles.
    for (const role of ["target", "baseline", "tester"] as const) {
      const tokenizer = given[role];
      for (const source of sources[role] ?? []) {
        const found = await find(source, tokenizer === undefined);
        if (tokenizer !== undefined) tokenizers.set(await identity(found), tokenizer);
        local[role].push(found);
        const base = await baseOf(found);
        weights.push(base === null ? found : await find(base, tokenizer === undefined));
      }
    }
    const sizes = await Promise.all(weights.map(weightBytes));
    const fastest = fastestTypes(engineInformation(), devices.tester, Math.max(...sizes));
    const rollouts = inferenceDtype === "auto" ? fastest.rollouts : inferenceDtype;
    const updates = updateDtype === "auto" ? fastest.updates : updateDtype;
    return new ModelCache(devices, rollouts, updates, local, tokenizers, find);
  }

  /** Local folder of a role's checkpoint; null for one that was passed already loaded. */
  folderOf(role: ModelRole): string | null {
    const source = this.#source(role);
    return typeof source === "string" ? source : null;
  }

  /** True if both roles use the same weights on the same device, so that one copy serves both. */
  async shares(a: ModelRole, b: ModelRole): Promise<boolean> {
    return (
      this.devices[a] === this.devices[b] &&
      (await identity(this.#source(a))) === (await identity(this.#source(b)))
    );
  }

  /**
   * True if the tokenizer.json files of two roles differ; nothing is loaded. False for adapters and for checkpoints
   * without a tokenizer.json, whose tokenizers may still differ.
   */
  async tellsTokensApart(a: ModelRole, b: ModelRole): Promise<boolean> {
    const one = await tokenizerOf(this.#source(a));
    const other = await tokenizerOf(this.#source(b));
    return one !== null && other !== null && !one.equals(other);
  }

  /**
   * Frozen weights in the inference dtype: one object per checkpoint and device.
   *
   * @param source a further model of the role. Default: the role's main one
   */
  frozen(role: ModelRole, source = this.#source(role)): Promise<LoadedCausalLM> {
    return this.#frozenFrom(source, this.devices[role]);
  }

  /** @param borrowed source of the tokenizer if the checkpoint has none */
  async #frozenFrom(given: ModelSource, device: Device, borrowed?: string): Promise<LoadedCausalLM> {
    const source = await this.#find(given, borrowed === undefined);
    const shelf = this.#frozen.get(device) ?? new Map<Identity, LoadedCausalLM>();
    this.#frozen.set(device, shelf);
    const key = await identity(source);
    const known = shelf.get(key);
    if (known !== undefined) return known;
    const tokenizer = borrowed ?? this.#tokenizers.get(key);
    const base = await baseOf(source);
    const loaded =
      base === null
        ? await this.#load(source, tokenizer, { device, dtype: this.dtype })
        : await this.#withAdapter(
            source as string,
            await this.#baseOf(source as string, base, device, tokenizer),
          );
    shelf.set(key, loaded);
    return loaded;
  }

  /** The base of an adapter, itself no adapter: the parameters of one would be those of its base alone. */
  async #baseOf(folder: string, base: string, device: Device, tokenizer?: string): Promise<LoadedCausalLM> {
    if ((await baseOf(await this.#find(base, tokenizer === undefined))) !== null) {
      throw new UsageError(
        "nested-adapter",
        `${join(folder, "adapter_config.json")}: "base_model_name_or_path" must be a whole checkpoint, but ${base} is an ` +
          `adapter itself; merge that one into its base first`,
      );
    }
    return this.#frozenFrom(base, device, tokenizer);
  }

  /** The tester's initial adapter and its frozen base; null for a checkpoint without an adapter. */
  async testerAdapter(): Promise<{ folder: string; base: string; model: LoadedCausalLM } | null> {
    const source = this.#source("tester");
    const base = await baseOf(source);
    if (base === null) return null;
    const folder = source as string;
    const tokenizer = this.#tokenizers.get(await identity(source));
    return { folder, base, model: await this.#baseOf(folder, base, this.devices.tester, tokenizer) };
  }

  /** The tester's own float32 weights, with gradients; matrix products use the update dtype. */
  async trainable(): Promise<LoadedCausalLM> {
    const source = this.#source("tester");
    const adapter = typeof source === "string" ? await LoRA.configurationOf(source) : null;
    if (adapter !== null) {
      const { rank, alpha, targetModules } = adapter;
      throw new UsageError(
        "untrainable-adapter",
        `${source as string}: is an adapter, whose base cannot be trained through it; to continue training ` +
          `the adapter, set ` +
          `models.lora to {rank: ${rank}, alpha: ${alpha}, targetModules: [${targetModules.join(", ")}]}`,
      );
    }
    const types = { device: this.devices.tester, dtype: "float32", computeDtype: this.updateDtype } as const;
    const loaded = await this.#load(source, this.#tokenizers.get(await identity(source)), types);
    for (const parameter of loaded.model.namedParameters().values()) parameter.requiresGrad_(true);
    return loaded;
  }

  /** The static steps of a model that these weights, or views of them, are; null where it is decoded without. */
  graphsOf(model: CausalLM, log: (message: string) => void): DecodeGraphs | null {
    if (!DecodeGraphs.fit(model)) return null;
    const known = this.#graphs.get(model) ?? this.own(new DecodeGraphs(model, { log }));
    this.#graphs.set(model, known);
    return known;
  }

  /** Takes ownership of an object made from these models; it is freed with them. */
  own<T extends { dispose(): void }>(made: T): T {
    this.#owned.push(made);
    return made;
  }

  dispose(): void {
    // Later objects may be views of earlier ones.
    for (const made of this.#owned.reverse()) made.dispose();
    this.#owned.length = 0;
    this.#graphs.clear();
    this.#frozen.clear();
  }

  #source(role: ModelRole): ModelSource {
    const source = this.#sources[role]?.[0];
    if (source === undefined) throw new Error(`internal: no model plays the ${role}`);
    return source;
  }

  async #withAdapter(folder: string, base: LoadedCausalLM): Promise<LoadedCausalLM> {
    const { model } = base;
    const adapter = this.own(await LoRA.load(folder, model.projections(), { device: model.device }));
    return { ...base, model: this.own(model.withAdapter(adapter)) };
  }

  async #load(
    source: ModelSource,
    tokenizer: string | undefined,
    types: { device: Device; dtype: DType; computeDtype?: DType },
  ): Promise<LoadedCausalLM> {
    if (typeof source === "string") {
      const loaded = await loadCausalLM(source, { ...types, tokenizer });
      this.own(loaded.model);
      return loaded;
    }
    if (source.model.device !== types.device) {
      throw new UsageError(
        "device-mismatch",
        `a loaded checkpoint must be on the device of its role (${types.device}), got ${source.model.device}; ` +
          `load it there, or give its folder`,
      );
    }
    // Copy: the caller's model may change, and gradients must only go to our own parameters.
    return { ...source, model: this.own(source.model.copy(types.dtype)) };
  }
}

/** Resolves a checkpoint to its local folder. */
type FindCheckpoint = (source: ModelSource, needsTokenizer: boolean) => Promise<ModelSource>;

/** Hub models are resolved once, so that all roles use the same commit. */
function checkpointFinder(hub: HubOptions = {}): FindCheckpoint {
  const known = new Map<string, Promise<string>>();
  const warn = { onWarning: (sentence: string) => console.error(sentence) };
  return async (source, needsTokenizer) => {
    if (typeof source !== "string") return source;
    const found = known.get(source) ?? resolveCheckpoint(source, { ...warn, ...hub, needsTokenizer });
    known.set(source, found);
    return found;
  };
}

const baseOf = async (source: ModelSource) => (typeof source === "string" ? adapterBase(source) : null);

/** Content of a checkpoint's tokenizer.json; null for adapters, loaded checkpoints and folders without one. */
async function tokenizerOf(source: ModelSource): Promise<Buffer | null> {
  if (typeof source !== "string" || (await baseOf(source)) !== null) return null;
  return readFile(join(source, "tokenizer.json")).catch(() => null);
}

async function identity(source: ModelSource): Promise<Identity> {
  if (typeof source !== "string") return source;
  // A missing folder is reported on loading, with a better message.
  return realpath(source).catch(() => source);
}

/** Size of a checkpoint's weights in bytes. */
async function weightBytes(source: ModelSource): Promise<number> {
  if (typeof source === "string") return storedWeightBytes(source);
  return [...source.model.namedParameters().values()].reduce((sum, tensor) => sum + 4 * tensor.numel(), 0);
}
