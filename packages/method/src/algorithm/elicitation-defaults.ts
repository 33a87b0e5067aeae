import type { z } from "zod";

/**
 * The shape of an experience, by the paths of its options, in configurations with the reward `elicitation` and DPO: as many
 * answers as otherwise, in trees of four siblings, which have three times as many pairs.
 */
export const WIDE_TREES = {
  "sampler.width": 4,
  "training.numEpisodesPerExperience": 4,
  "training.trainingSteps": 100,
} as const;

/**
 * The fields of a kind whose options have other defaults in configurations with the reward `elicitation`, `pairMargin` in
 * harm. The kind's schema has no defaults for these options: the configuration, which knows the reward, fills them in.
 */
export function elicitationDefaults<S extends z.ZodObject>(
  schema: S,
  values: Readonly<Record<string, number | string>>,
) {
  const fields = Object.entries(values).map(([name, value]) => {
    const field = schema.shape[name] as z.ZodDefault<z.ZodType<number | string>>;
    const shown = name === "pairMargin" ? `${value} times responseWeight` : value;
    const [own, otherwise] = [field.unwrap(), field.parse(undefined)];
    const text = `${field.description ?? own.description}. Default: ${shown} with the reward elicitation, otherwise ${otherwise}`;
    return { name, schema: own.optional().describe(text), defaults: [value, otherwise] as const };
  });
  const shape = Object.fromEntries(fields.map((field) => [field.name, field.schema]));
  return {
    schema: schema.extend(shape) as unknown as S,
    elicitationDefaults: Object.fromEntries(fields.map(({ name, defaults }) => [name, defaults])),
  };
}
