import { LocalModel } from "@astra-rl/lm";
import type { Model } from "../../src/models/index.js";

/** The target of a system that was loaded from checkpoints only. */
export function localTarget({ target }: { readonly target: Model }): LocalModel {
  if (!(target instanceof LocalModel)) throw new Error(`the target ${target.name} is not of this process`);
  return target;
}

/** The tester of a system that was loaded from checkpoints only. */
export function localTester({ tester }: { readonly tester: Model }): LocalModel {
  if (!(tester instanceof LocalModel)) throw new Error(`the tester ${tester.name} is not of this process`);
  return tester;
}
