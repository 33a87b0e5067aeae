export function compareFrameworks(
  frameworks: Readonly<Record<string, { version: string; entries: Readonly<Record<string, string>> }>>,
  folder: string,
): { differences: string[]; missing: string[] };
