export function cudaGraphFlags(
  layout: { prefix: string; libraryFolder: string; includeFolders: readonly string[] },
  version: string,
  environment?: Readonly<Record<string, string | undefined>>,
): string[];
