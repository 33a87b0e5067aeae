/** Uniform numbers in [0, 1). */
export type Random = () => number;

/** One element of a list that must not be empty. */
export function pick<T>(options: readonly T[], random: Random): T {
  const chosen = options[Math.floor(random() * options.length)];
  if (chosen === undefined) throw new Error("internal: picked from an empty list");
  return chosen;
}

/**
 * Expands a template: `[a|b]` picks one alternative, `{slot}` takes one of the slot's words. "a {slot}" becomes "an
 * {slot}" if the word begins with a vowel; the first letter is capitalized.
 */
export function expand(
  template: string,
  slots: Readonly<Record<string, readonly string[]>>,
  random: Random,
): string {
  const text = template
    .replace(/\[([^\]]*)\]/g, (_, alternatives: string) => pick(alternatives.split("|"), random))
    .replace(/\{(\w+)\}/g, (_, name: string) => {
      const words = slots[name];
      if (words === undefined)
        throw new Error(`internal: template "${template}" has an unknown slot {${name}}`);
      return pick(words, random);
    })
    // By spelling, which is correct for the words used here: "an umbrella", but "a useless" and "a university".
    .replace(/\b([Aa]) (?=[aeio]|u(?!s|ni))/g, "$1n ")
    .replace(/\s+/g, " ")
    .trim();
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Every text that a template without slots can expand to. */
export function templateVariants(template: string): string[] {
  const choice = /\[([^\]]*)\]/.exec(template);
  if (choice === null) return [template];
  return choice[1]!.split("|").flatMap((word) => templateVariants(template.replace(choice[0], word)));
}
