export const PREBUILT: readonly string[];
export const PUBLISHED: readonly string[];
export function isWithoutEngine(name: string): boolean;
