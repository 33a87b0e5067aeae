export interface ArchiveSource {
  url: string;
  sha256: string;
}
export const OFFICIAL: ArchiveSource & { version: string };
export function archiveFolder(source: ArchiveSource, environment?: NodeJS.ProcessEnv): string;
export function archiveSource(environment?: NodeJS.ProcessEnv): ArchiveSource | { problem: string };
export function fetchArchive(
  source: ArchiveSource,
  folder: string,
  say: (line: string) => void,
): Promise<void>;
export function unzip(file: string, folder: string): Promise<void>;
