import type { z } from "zod";

/**
 * The fields of a kind whose options have other defaults in configurations with the reward `elicitation`, `pairMargin` in
 * harm. Its schema leaves these options undefined, and so to the reward or else to the algorithm's class.
 */
export function elicitationDefaults<S extends z.ZodObject>(
  schema: S,
  values: Readonly<Record<string, number>>,
) {
  const fields = Object.entries(values).map(([name, value]) => {
    const field = schema.shape[name] as z.ZodDefault<z.ZodNumber>;
    const shown = name === "pairMargin" ? `${value} times responseWeight` : value;
    const own = field.unwrap();
    const text = `${field.description ?? own.description}. Default: ${shown} with the reward elicitation, otherwise ${field.parse(undefined)}`;
    return [name, own.optional().describe(text)];
  });
  return { schema: schema.extend(Object.fromEntries(fields)) as unknown as S, elicitationDefaults: values };
}
