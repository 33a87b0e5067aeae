import { z } from "zod";

/** A device by name: "cuda" is the current CUDA device. */
export const deviceSchema = z.string().regex(/^(cpu|cuda(:\d+)?)$/, 'must be "cpu", "cuda" or "cuda:N"');
