export const root: string;
export function run(
  program: string,
  args: readonly string[],
  options?: { cwd?: string; env?: NodeJS.ProcessEnv },
): string;
export function packedIn(folder: string): { name: string; version: string; path: string }[];
