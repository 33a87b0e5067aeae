export const PUBLISHED: readonly string[];
export function isWithoutEngine(name: string): boolean;
