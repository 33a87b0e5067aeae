import { UsageError } from "@astra-rl/base";

/**
 * Pairs of methods, for one item and for many, that fall back on each other. The one that a subclass overrides is used;
 * overriding both is ambiguous.
 */

/** Whether an object's class overrides any of these methods of `base`. */
export function overrides(object: object, base: object, ...methods: readonly string[]): boolean {
  return methods.some((method) => Reflect.get(object, method) !== Reflect.get(base, method));
}

/** @throws UsageError when a class overrides both methods of a pair; `both` names the method that they share */
export function refuseTwins(object: object, one: string, many: string, both: string): void {
  const overridden = [one, many].every((name) => {
    let prototype = Object.getPrototypeOf(object) as object | null;
    let owners = 0;
    // Every class that defines the method overrides it, except the abstract base.
    for (; prototype !== null; prototype = Object.getPrototypeOf(prototype) as object | null) {
      if (Object.hasOwn(prototype, name)) owners += 1;
    }
    return owners > 1;
  });
  if (!overridden) return;
  throw new UsageError(
    "conflicting-overrides",
    `${object.constructor.name}: overrides both ${one} and ${many}, but only one of them is used; override ${both}, ` +
      `on which both are based, or one of the two`,
  );
}
