import { dotted } from "../options/index.js";
import { kindPlaces } from "./kind-sections.js";
import { findKind, type KindSectionName } from "./registry.js";
import type { Configuration, KindSection } from "./schema.js";

/** A model that a configuration names. */
export interface ConfiguredModel {
  /** Where it stands, without `models.`. */
  path: readonly (string | number)[];
  /** Its name in the system and in records: its role, with a number where the role has several. */
  name: string;
  model: string;
  /** Whether `model` is an export of a module, not a checkpoint. */
  isModule: boolean;
  /** Whether only its tokenizer is taken. */
  tokenizerOnly: boolean;
}

/** Every model of a configuration, the roles first. */
export function configuredModels({ models }: Pick<Configuration, "models">): ConfiguredModel[] {
  const { otherTesters, otherTargets } = models;
  const one = (key: SingleModelKey, tokenizerOnly = false) => {
    const model = models[key];
    return model === undefined ? [] : [{ path: [key], name: key, ...named(model), tokenizerOnly }];
  };
  const several = (role: "tester" | "target", key: string, names: readonly (string | KindSection)[]) =>
    names.map((model, at) => {
      return { path: [key, at], name: memberName(role, at), ...named(model), tokenizerOnly: false };
    });
  return [
    ...one("tester"),
    ...one("target"),
    ...one("baseline"),
    ...one("likelihood"),
    ...several("tester", "otherTesters", otherTesters),
    ...several("target", "otherTargets", otherTargets),
    ...one("testerTokenizer", true),
    ...one("targetTokenizer", true),
  ];
}

type SingleModelKey = "tester" | "target" | "baseline" | "likelihood" | "testerTokenizer" | "targetTokenizer";

const named = (model: string | KindSection) =>
  typeof model === "string" ? { model, isModule: false } : { model: model.type, isModule: true };

/** The name of a role's further model, counted from 0: `target-2` is the first beside `target`. */
const memberName = (role: string, at: number): string => `${role}-${at + 2}`;

/** A checkpoint that a part of a run loads, with the dotted key of the section that chooses the part. */
export interface PartModel {
  key: string;
  /** A folder or a hub id. */
  model: string;
}

/** The checkpoints of scorers, terms and whatever else a configuration chooses by `type:`. */
export function partModels(configuration: Configuration): PartModel[] {
  return modelsIn(configuration);
}

/** As `partModels`, of one section that chooses a kind. */
export function sectionModels(name: KindSectionName, section: KindSection): PartModel[] {
  return modelsIn({ [name]: section });
}

function modelsIn(content: object): PartModel[] {
  const plain = JSON.parse(JSON.stringify(content)) as Record<string, unknown>;
  return kindPlaces(plain).flatMap(({ path, role, section }) => {
    const { type, ...options } = section;
    const models = findKind(role, type as string)?.models?.(options) ?? [];
    return models.map((model, index) => ({ key: dotted(index === 0 ? path : [...path, index]), model }));
  });
}
