export interface Libtorch {
  origin: "LIBTORCH" | "python" | "debian" | "download";
  root: string;
  version: string;
  libraryDirectory: string;
  libraries: readonly string[];
  cuda: boolean;
  blas: string | null;
}
export type Search = { found: Libtorch } | { found: null; why: string };
export function fromVariable(value?: string): Search;
export function fromPython(python?: string | null): Search;
export function fromCache(folder: string): Search;
export function versionFromHeaders(include: string): string | null;
