export const operatorTable: readonly (readonly [name: string, ...overloads: string[]])[];
export const internalOperators: readonly string[];
export const laterOperators: Readonly<Record<string, string>>;
