import type { ArchiveSource } from "./archive.mjs";
import type { Libtorch, Search } from "./libtorch.mjs";
import type { Prebuilt } from "./prebuilt.mjs";

export interface Means {
  say: (line: string) => void;
  command?: string;
  prebuilt?: Prebuilt | null;
  canBuild?: () => boolean;
  variable?: () => Search;
  python?: () => Search;
  debian?: () => Search;
  cached?: (folder: string) => Search;
  aptWhyNot?: () => string;
  install?: (packages: readonly string[], say: (line: string) => void) => { ok: boolean; why: string };
  source?: () => ArchiveSource | { problem: string };
  fetch?: (source: ArchiveSource, folder: string, say: (line: string) => void) => Promise<void>;
}
export function obtainLibtorch(means: Means): Promise<Libtorch>;
