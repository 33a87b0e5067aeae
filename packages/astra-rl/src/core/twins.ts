import { UsageError } from "@astra-rl/torch";

/**
 * Methods that come in pairs, for one and for many, each of which falls back on the other. Whichever a subclass
 * overrides is the one that counts; if it overrides both, nobody could say which.
 */

/** Whether an object's class has any of these methods in place of those of `base`. */
export function overrides(object: object, base: object, ...methods: readonly string[]): boolean {
  return methods.some((method) => Reflect.get(object, method) !== Reflect.get(base, method));
}

/** @throws UsageError when a class overrides both of two twins, which rest on a third method */
export function refuseTwins(object: object, one: string, many: string, both: string): void {
  const overridden = [one, many].every((name) => {
    let prototype = Object.getPrototypeOf(object) as object | null;
    let owners = 0;
    // Every class but the last, abstract one that has the method overrides it.
    for (; prototype !== null; prototype = Object.getPrototypeOf(prototype) as object | null) {
      if (Object.hasOwn(prototype, name)) owners += 1;
    }
    return owners > 1;
  });
  if (!overridden) return;
  throw new UsageError(
    `${object.constructor.name}: overrides both ${one} and ${many}, and only one of them can count; override ${both}, ` +
      `on which both rest, or one of the two`,
  );
}
