import { z } from "zod";

const ids = z.array(z.int().nonnegative());
const end = z.int().nonnegative().optional();

export const tokensSchema = z.looseObject({
  tester: z
    .looseObject({
      /** Its input before the probe. */
      context: ids,
      /** The probe, as stored in the conversation. */
      probe: ids,
      /** The end token, not part of the probe's text; absent if there was none. */
      end,
    })
    .optional(),
  target: z
    .looseObject({
      /** Its input before the probe and the template tokens around it. */
      context: ids,
      /** The tokens appended next: the probe and the template tokens around it. */
      heard: ids,
      /** The probe alone. */
      probe: ids,
      /** The text of each of its tokens, and log P of each under the target; absent where they are not known. */
      pieces: z.array(z.string()).optional(),
      logprobs: z.array(z.number()).optional(),
      response: ids,
      end,
    })
    .optional(),
  /** Whether an overridden method replaced what the models sampled or read; absent if not. */
  edited: z.literal(true).optional(),
});

/** Token ids of a turn, in each model's own vocabulary. */
export type TokensRecord = z.infer<typeof tokensSchema>;
