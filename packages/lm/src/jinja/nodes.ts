/** The syntax tree of a template. */

export interface Parameters {
  readonly names: readonly string[];
  /** Defaults of the last names, as many as have one. */
  readonly defaults: readonly Expression[];
}

export interface CallArguments {
  readonly positional: readonly Expression[];
  readonly named: readonly (readonly [string, Expression])[];
  /** `*list` */
  readonly spread: Expression | null;
  /** `**dict` */
  readonly namedSpread: Expression | null;
}

export type Target =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "tuple"; readonly items: readonly Target[] }
  | { readonly kind: "attribute of namespace"; readonly name: string; readonly attribute: string };

export type Expression =
  | { readonly kind: "constant"; readonly value: null | boolean | bigint | number | string }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "tuple" | "list"; readonly items: readonly Expression[] }
  | { readonly kind: "dict"; readonly entries: readonly (readonly [Expression, Expression])[] }
  | {
      readonly kind: "binary";
      readonly operator: string;
      readonly left: Expression;
      readonly right: Expression;
    }
  | { readonly kind: "concatenation"; readonly parts: readonly Expression[] }
  | {
      readonly kind: "logic";
      readonly operator: "and" | "or";
      readonly left: Expression;
      readonly right: Expression;
    }
  | { readonly kind: "unary"; readonly operator: "not" | "-" | "+"; readonly operand: Expression }
  | {
      readonly kind: "comparison";
      readonly first: Expression;
      readonly rest: readonly { readonly operator: string; readonly operand: Expression }[];
    }
  | {
      readonly kind: "condition";
      readonly test: Expression;
      readonly whenTrue: Expression;
      readonly whenFalse: Expression | null;
    }
  | { readonly kind: "attribute"; readonly object: Expression; readonly name: string }
  | { readonly kind: "item"; readonly object: Expression; readonly key: Expression }
  | {
      readonly kind: "slice";
      readonly start: Expression | null;
      readonly stop: Expression | null;
      readonly step: Expression | null;
    }
  | { readonly kind: "call"; readonly callee: Expression; readonly given: CallArguments }
  /** A filter block has no operand. */
  | {
      readonly kind: "filter";
      readonly operand: Expression | null;
      readonly name: string;
      readonly given: CallArguments;
    }
  | {
      readonly kind: "test";
      readonly operand: Expression;
      readonly name: string;
      readonly given: CallArguments;
    };

export type Body = readonly Statement[];

export type Statement =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "output"; readonly expression: Expression }
  | { readonly kind: "if"; readonly test: Expression; readonly whenTrue: Body; readonly whenFalse: Body }
  | {
      readonly kind: "for";
      readonly target: Target;
      readonly iterable: Expression;
      readonly filter: Expression | null;
      readonly isRecursive: boolean;
      readonly body: Body;
      readonly otherwise: Body;
      /** Whether the body reads `loop`, which looks one element ahead. */
      readonly readsLoop: boolean;
    }
  | { readonly kind: "set"; readonly target: Target; readonly value: Expression }
  | {
      readonly kind: "set block";
      readonly target: Target;
      readonly filter: Expression | null;
      readonly body: Body;
    }
  | {
      readonly kind: "with";
      readonly bindings: readonly (readonly [Target, Expression])[];
      readonly body: Body;
    }
  | { readonly kind: "scope"; readonly body: Body }
  | { readonly kind: "filter block"; readonly filter: Expression; readonly body: Body }
  | { readonly kind: "macro"; readonly name: string; readonly parameters: Parameters; readonly body: Body }
  | {
      readonly kind: "call block";
      readonly call: Expression;
      readonly parameters: Parameters;
      readonly body: Body;
    }
  | { readonly kind: "break" | "continue" };

/** Whether a name is read anywhere within a part of the tree. */
export function reads(part: unknown, name: string): boolean {
  if (typeof part !== "object" || part === null) return false;
  if (Array.isArray(part)) return part.some((member) => reads(member, name));
  const node = part as { kind?: string; name?: unknown };
  if (node.kind === "name" && node.name === name) return true;
  return Object.values(node).some((member) => reads(member, name));
}
