import { z } from "zod";

/** What the calls to the server of a model took. */
const spent = z.looseObject({
  calls: z.int().nonnegative(),
  /** Tokens of inputs and of answers. */
  input_tokens: z.number().nonnegative(),
  output_tokens: z.number().nonnegative(),
  /** null without a price. */
  dollars: z.number().nonnegative().nullable(),
});

/** By the model's name, such as "target". */
export const spendingSchema = z.record(z.string(), spent);

export type SpendingRecord = z.infer<typeof spendingSchema>;

/** "target: 1,024 calls, 80,000 tokens read, 9,000 generated, $0.4200" for each model. */
export const spendingLines = (spending: SpendingRecord): string[] =>
  Object.entries(spending).map(([name, { calls, input_tokens: read, output_tokens: written, dollars }]) => {
    const [asked, input, output] = [calls, read, written].map((count) => count.toLocaleString("en-US"));
    const cost = dollars === null ? "" : `, $${dollars.toFixed(4)}`;
    return `${name}: ${asked} calls, ${input} tokens read, ${output} generated${cost}`;
  });
