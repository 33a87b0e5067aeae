export interface ArchiveSource {
  url: string;
  sha256: string;
}
export function archiveSource(environment?: NodeJS.ProcessEnv): ArchiveSource | { problem: string };
export function fetchArchive(
  source: ArchiveSource,
  folder: string,
  say: (line: string) => void,
): Promise<void>;
export function unzip(file: string, folder: string): Promise<void>;
