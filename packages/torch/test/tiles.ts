import { engineInformation } from "../src/index.js";

/** Whether the kernels written for tiles apply: on tiles, or on vectors of bfloat16 pairs instead. */
export const mayUseTiles = ["amx", "avx512_bf16"].includes(engineInformation().isa);
