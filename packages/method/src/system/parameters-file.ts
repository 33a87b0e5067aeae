import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { checkDigest, UsageError, writeDigests } from "@astra-rl/base";
import { noGrad, openSafetensors, scope, writeSafetensors, type Tensor } from "@astra-rl/torch";

/** The file of parameters without a specific format in a checkpoint. */
const fileIn = (folder: string) => join(folder, "state", "parameters.safetensors");

/** Writes parameters, numbered in their order, to a folder. */
export function saveParameters(parameters: Iterable<Tensor>, folder: string): void {
  const path = fileIn(folder);
  const digests = new Map<string, string>();
  mkdirSync(dirname(path), { recursive: true });
  const numbered = [...parameters].map((tensor, index) => [String(index), tensor] as const);
  writeSafetensors(path, new Map(numbered), {}, digests);
  writeDigests(dirname(path), digests);
}

/** Copies what `saveParameters` wrote into the same parameters, in place. */
export function loadParameters(given: Iterable<Tensor>, folder: string): void {
  const parameters = [...given];
  const path = fileIn(folder);
  noGrad(() =>
    scope(() => {
      checkDigest(path);
      const file = openSafetensors(path);
      if (file.tensors.size !== parameters.length) {
        throw new UsageError(
          "tensor-count-mismatch",
          `${path}: must hold the system's ${parameters.length} parameters, got ${file.tensors.size} tensors`,
        );
      }
      const stored = parameters.map((parameter, index) => {
        const tensor = file.read(String(index));
        const [given, needed] = [tensor, parameter].map(
          ({ dtype, shape }) => `${dtype} [${shape.join(", ")}]`,
        );
        if (given !== needed)
          throw new UsageError("tensor-mismatch", `${path}: tensor ${index} must be ${needed}, got ${given}`);
        return tensor;
      });
      for (const [index, parameter] of parameters.entries()) parameter.copy_(stored[index]!);
      file.close();
    }),
  );
}
