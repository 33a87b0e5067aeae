/** Before the name of a part that a program made, where a package or file would stand. */
const PREFIX = "program#";

/**
 * How a configuration names what a program passed to `train` or `evaluate`: parts by the name of their class, prompts by
 * the hash of their content.
 */
export const programReference = (name: string): string => `${PREFIX}${name}`;

export const isProgramReference = (value: string): boolean => value.startsWith(PREFIX);

/** The name in a reference. */
export const programName = (reference: string): string => reference.slice(PREFIX.length);
