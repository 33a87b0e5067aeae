import { UsageError } from "@astra-rl/base";
import { distributed } from "@astra-rl/torch";

/** @throws UsageError if a text differs between the ranks of this run */
export async function requireSame(what: string, text: string): Promise<void> {
  const all = await distributed.allGatherObject(text);
  const other = all.findIndex((each) => each !== all[0]);
  if (other < 0) return;
  throw new UsageError(
    "ranks-disagree",
    `rank ${other}: ${what} differs from that of rank 0; all ranks must run the same command on the same files`,
  );
}
