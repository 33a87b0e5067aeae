export function checkImports(root: string): string[];
export function importedNames(text: string): string[];
