export function aptAccess(): { command: readonly string[] | null; why: string };
export function aptInstall(
  packages: readonly string[],
  say: (line: string) => void,
): { ok: boolean; why: string };
