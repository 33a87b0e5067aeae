/**
 * Whether the tests of the night run (`npm run nightly` sets ASTRA_NIGHT=1): they repeat what is generated more often, and try
 * every variant of what `npm test` tries in a few.
 */
const isNight = process.env["ASTRA_NIGHT"] === "1";

/** How often a test repeats something generated: `usual` times, and `night` times in the night. */
export const rounds = (usual: number, night: number): number => (isNight ? night : usual);

/** Variants of one statement: the first ones, and all of them in the night. */
export const variants = <T>(all: readonly T[], usual = 1): readonly T[] =>
  isNight ? all : all.slice(0, usual);
