// Types of what these tests import from programs in JavaScript.

declare module "*/setup/command.mjs" {
  export function executeBeside(
    program: string,
    args: readonly string[],
    options?: { cwd?: string; env?: NodeJS.ProcessEnv; show?: boolean },
  ): Promise<{ ok: boolean; output: string; reason: string }>;
}

declare module "*/setup/platform.mjs" {
  export function checkPlatform(platform?: string): void;
  export function compilerShortcoming(
    description: string,
    version: string,
    architecture?: string,
  ): string | null;
  export function checkNode(version?: string): void;
}

declare module "*/site/check.mjs" {
  export function linksOf(
    path: string,
    htmlOf: (path: string) => string | null,
    base?: string,
  ): { dead: string[]; count: number };
}

declare module "*/site/pages.mjs" {
  export const slugify: (text: string) => string;
  export function pageOf(path: string): string;
  export function rewriteLinks(
    path: string,
    text: string,
    kindOf: (path: string) => string,
  ): { text: string; files: string[] };
  export function summaryOf(text: string): string;
  export function sectionsOf(
    index: string,
    pages: readonly string[],
  ): { title: string; pages: { path: string; inside: string[] }[] }[];
  export const escapeVue: (text: string) => string;
}
