import { addon, type NativeAddon } from "../src/native.js";

/** Functions of test/native, which the addon has if it was built in a clone. */
export interface TestAddon extends NativeAddon {
  /** See meta-device.cpp. */
  computeOnMeta(): void;
  /** Bytes of all storages that live tensors, and the gradients of leaves, refer to. */
  liveBytes(): number;
  /** libtorch's schema of an operator, "aten::add.Tensor"; null if it does not exist. */
  schema(name: string): string | null;
  /** See guarded.cpp; also for the next. */
  guardAllocations(alignment: number, fill: number): void;
  failAllocation(after: number): number;
}

export const testAddon = () => addon() as TestAddon;
