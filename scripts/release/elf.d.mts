export function newestSymbols(files: readonly string[]): Record<string, string>;
export function neededLibraries(file: string): { needed: string[]; paths: string[] };
