import { readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import {
  adapterBase,
  loadCausalLM,
  LoRA,
  resolveCheckpoint,
  storedWeightBytes,
  type HubOptions,
  type LoadedCausalLM,
} from "@astra-rl/lm";
import { engineInformation, requireDevice, UsageError, type Device, type DType } from "@astra-rl/torch";
import { fastestTypes } from "./compute-types.js";

/**
 * A Hugging Face folder, a folder with an adapter in PEFT's format (its base is loaded with it), the model id of either
 * on the hub ("owner/name[@revision]"), or a checkpoint that is already loaded (which stays the caller's).
 */
export type ModelSource = string | LoadedCausalLM;

/** A type to compute in. "auto" is bfloat16 where the machine and the models' size promise a gain, else float32. */
export type InferenceDType = "auto" | "bfloat16" | "float32";

export interface ModelShelfOptions {
  /** Where every role computes that has no device of its own. Default "cpu". */
  device?: Device;
  /** Where the tester computes, and is trained. Default: `device`. */
  testerDevice?: Device;
  /** Where the target computes; elsewhere than the tester, it shares no weights with it. Default: `device`. */
  targetDevice?: Device;
  /** Where the baseline computes; elsewhere than the tester, it shares no weights with it. Default: `device`. */
  baselineDevice?: Device;
  /** Folder or model id whose tokenizer tester and baseline take where their checkpoints have none of their own. */
  testerTokenizer?: string;
  /** The same for the target. */
  targetTokenizer?: string;
  /** Type in which rollouts and frozen models compute. Default "auto". */
  inferenceDtype?: InferenceDType;
  /** Type of the products of updates; "auto" decides apart from rollouts. Default: `inferenceDtype`. */
  updateDtype?: InferenceDType;
  /** How model ids are fetched. Default: as the environment says; its warnings go to stderr. */
  hub?: HubOptions;
}

/** The roles that models play. */
const MODEL_ROLES = ["tester", "target", "baseline"] as const;

export type ModelRole = (typeof MODEL_ROLES)[number];

/** The checkpoints of each role: its own, then further ones. */
export type ModelSources = Readonly<Partial<Record<ModelRole, readonly ModelSource[]>>>;

type Identity = string | LoadedCausalLM;

/** Where each role computes. @throws UsageError for a device that this process cannot use */
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

/** Loads each checkpoint once, however many roles it plays, and frees what it loaded. */
export class ModelShelf {
  readonly #sources: ModelSources;
  /** By what identifies a checkpoint: where its tokenizer is where it has none of its own. */
  readonly #tokenizers: ReadonlyMap<Identity, string>;
  readonly #find: FindCheckpoint;
  /** By device, then by what identifies a checkpoint. */
  readonly #frozen = new Map<Device, Map<Identity, LoadedCausalLM>>();
  readonly #owned: { dispose(): void }[] = [];

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

  /** @param sources the checkpoints, fetched where they are on the hub; "auto" looks at their size */
  static async open(options: ModelShelfOptions, sources: ModelSources): Promise<ModelShelf> {
    const { inferenceDtype = "auto", testerTokenizer, targetTokenizer } = options;
    const { updateDtype = inferenceDtype } = options;
    const devices = devicesOf(options);
    const given = { tester: testerTokenizer, target: targetTokenizer, baseline: testerTokenizer };
    const find = checkpointFinder(options.hub);
    const local: Record<ModelRole, ModelSource[]> = { tester: [], target: [], baseline: [] };
    const tokenizers = new Map<Identity, string>();
    // The tester's last, so that it is its own that a checkpoint of several roles has.
    for (const role of ["target", "baseline", "tester"] as const) {
      const tokenizer = given[role];
      for (const source of sources[role] ?? []) {
        const found = await find(source, tokenizer === undefined);
        if (tokenizer !== undefined) tokenizers.set(await identity(found), tokenizer);
        local[role].push(found);
      }
    }
    const sizes = await Promise.all(Object.values(local).flat().map(weightBytes));
    const fastest = fastestTypes(engineInformation(), devices.tester, Math.max(...sizes));
    const rollouts = inferenceDtype === "auto" ? fastest.rollouts : inferenceDtype;
    const updates = updateDtype === "auto" ? fastest.updates : updateDtype;
    return new ModelShelf(devices, rollouts, updates, local, tokenizers, find);
  }

  /** Where a role's checkpoint lies on this machine; null for one that is loaded already. */
  folderOf(role: ModelRole): string | null {
    const source = this.#source(role);
    return typeof source === "string" ? source : null;
  }

  /** True when both roles have the same weights in the same place, so that one set serves both. */
  async shares(a: ModelRole, b: ModelRole): Promise<boolean> {
    return (
      this.devices[a] === this.devices[b] &&
      (await identity(this.#source(a))) === (await identity(this.#source(b)))
    );
  }

  /**
   * True when the files of two roles show, before anything is loaded, that their tokenizers differ. Adapters, and
   * checkpoints without a tokenizer.json, show nothing.
   */
  async tellsTokensApart(a: ModelRole, b: ModelRole): Promise<boolean> {
    const one = await tokenizerOf(this.#source(a));
    const other = await tokenizerOf(this.#source(b));
    return one !== null && other !== null && !one.equals(other);
  }

  /**
   * Weights that nothing changes, in the inference type: the same object for the same checkpoint in the same place.
   *
   * @param source of a further model of the role. Default: the role's own
   */
  frozen(role: ModelRole, source = this.#source(role)): Promise<LoadedCausalLM> {
    return this.#frozenFrom(source, this.devices[role]);
  }

  /** @param borrowed whose tokenizer is taken where there is none */
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
        : await this.#withAdapter(source as string, await this.#frozenFrom(base, device, tokenizer));
    shelf.set(key, loaded);
    return loaded;
  }

  /** Weights of the tester's own in float32, with gradients; products in the type of updates. */
  async trainable(): Promise<LoadedCausalLM> {
    const source = this.#source("tester");
    if ((await baseOf(source)) !== null) {
      throw new UsageError(
        `${source as string}: is an adapter, whose base cannot be trained through it; give the base as tester, with lora, and ` +
          `restore the adapter, or merge the two first`,
      );
    }
    const types = { device: this.devices.tester, dtype: "float32", computeDtype: this.updateDtype } as const;
    const loaded = await this.#load(source, this.#tokenizers.get(await identity(source)), types);
    for (const parameter of loaded.model.namedParameters().values()) parameter.requiresGrad_(true);
    return loaded;
  }

  /** Takes over what somebody made from these models, to be freed with them. */
  own<T extends { dispose(): void }>(made: T): T {
    this.#owned.push(made);
    return made;
  }

  dispose(): void {
    // What was made last may be a view of what was made before.
    for (const made of this.#owned.reverse()) made.dispose();
    this.#owned.length = 0;
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
      const loaded = await loadCausalLM(source, {
        ...types,
        ...(tokenizer === undefined ? {} : { tokenizer }),
      });
      this.own(loaded.model);
      return loaded;
    }
    if (source.model.device !== types.device) {
      throw new UsageError(
        `a loaded checkpoint must be on the device of its role (${types.device}), got ${source.model.device}; ` +
          `load it there, or give its folder`,
      );
    }
    // A copy, since the caller's model may change, and gradients belong to our own parameters only.
    return { ...source, model: this.own(source.model.copy(types.dtype)) };
  }
}

/** Where a checkpoint lies on this machine. */
type FindCheckpoint = (source: ModelSource, needsTokenizer: boolean) => Promise<ModelSource>;

/** Those from the hub are looked for once, so that all roles get one commit. */
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

/** The bytes that define a checkpoint's tokenizer; null where that takes more than a look at its folder. */
async function tokenizerOf(source: ModelSource): Promise<Buffer | null> {
  if (typeof source !== "string" || (await baseOf(source)) !== null) return null;
  return readFile(join(source, "tokenizer.json")).catch(() => null);
}

async function identity(source: ModelSource): Promise<Identity> {
  if (typeof source !== "string") return source;
  // A folder that does not exist is reported when it is loaded, with what a checkpoint is.
  return realpath(source).catch(() => source);
}

/** Size of a checkpoint's weights. */
async function weightBytes(source: ModelSource): Promise<number> {
  if (typeof source === "string") return storedWeightBytes(source);
  return [...source.model.namedParameters().values()].reduce((sum, tensor) => sum + 4 * tensor.numel(), 0);
}
