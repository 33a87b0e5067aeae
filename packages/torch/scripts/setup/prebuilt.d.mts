export interface Prebuilt {
  folder: string;
  version: string;
  libtorch: string;
  glibc: string;
}
export function prebuiltName(platform?: string, architecture?: string): string;
export function prebuiltIn(folder: string): Prebuilt | null;
export function prebuiltEngine(): Prebuilt | null;
export function fitsPrebuilt(
  libtorch: { version: string | null; cuda: boolean },
  prebuilt: Prebuilt | null,
): boolean;
