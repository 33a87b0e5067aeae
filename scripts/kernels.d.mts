/** Files and folders, from the root of the repository. */
export const KERNEL_SOURCES: readonly string[];
export function kernelHash(root: string): string;
