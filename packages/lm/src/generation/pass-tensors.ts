import { keep, scope, type Tensor } from "@astra-rl/torch";

/** Tensors that the layers of a pass share, made at their first use; they are owned until `dispose`. */
export class PassTensors {
  readonly #made = new Map<string, Tensor>();

  once(name: string, make: () => Tensor): Tensor {
    const known = this.#made.get(name);
    if (known !== undefined) return known;
    const made = keep(scope(make));
    this.#made.set(name, made);
    return made;
  }

  dispose(): void {
    for (const made of this.#made.values()) made.dispose();
    this.#made.clear();
  }
}
