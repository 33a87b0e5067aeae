export const operatorTable: readonly (readonly [name: string, ...overloads: string[]])[];
export const internalOperators: readonly string[];
