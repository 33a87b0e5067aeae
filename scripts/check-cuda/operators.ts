import { isTensor, scope, type Device } from "@astra-rl/torch";
import {
  disagreement,
  goldenCases,
  resultOf,
  type Tolerance,
} from "../../packages/torch/test/golden-cases.js";
import type { Row } from "./table.js";

/** GPUs add in another order and have functions of their own. */
const tolerance: Tolerance = { float32: 1e-5, float64: 1e-9, bfloat16: 1e-2, float16: 2e-3 };

/** Every operator of the package on the device, against PyTorch's values on the CPU. */
export function checkOperators(device: Device): Row[] {
  const wrong: string[] = [];
  let checked = 0;
  for (const [index, item] of goldenCases().entries()) {
    const given = JSON.stringify([item.arguments, item.options]);
    // Without tensors it would be made on the CPU; generators draw on the CPU.
    if (!given.includes('"tensor"') || given.includes('"generator"')) continue;
    checked += 1;
    try {
      scope(() => {
        const { result } = resultOf(item, device);
        const found = disagreement(result, item.expected, tolerance, `${item.name} (case ${index})`);
        if (found !== null) wrong.push(found);
        const elsewhere = [result].flat().find((each) => isTensor(each) && !each.device.startsWith(device));
        if (elsewhere !== undefined) wrong.push(`${item.name} (case ${index}): a result on another device`);
      });
    } catch (error) {
      wrong.push(`${item.name} (case ${index}): ${String(error).split("\n")[0]}`);
    }
  }
  const rows: Row[] = [
    {
      what: "operators: results equal PyTorch's",
      found: `${checked - wrong.length} of ${checked} cases`,
      holds: wrong.length === 0,
    },
  ];
  return [
    ...rows,
    ...wrong.map((found) => ({ what: "operators: differs", found: found.slice(0, 200), holds: false })),
  ];
}
