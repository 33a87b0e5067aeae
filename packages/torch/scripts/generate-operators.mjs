#!/usr/bin/env node
// Writes src/operators.generated.ts from the schemas of the libtorch that the addon is built against.
// The committed file is made with libtorch 1.13; a test checks every schema against the loaded one.
//
//   node packages/torch/scripts/generate-operators.mjs
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { internalOperators, laterOperators, operatorTable } from "./operator-table.mjs";

const packageFolder = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const native = createRequire(import.meta.url)(resolve(packageFolder, "build", "astra_torch.node"));

const camel = (name) => name.replace(/_+([a-z0-9])/gu, (_, letter) => letter.toUpperCase());
/** Arguments that wrappers do not expose: libtorch's default is passed. */
const hidden = new Set(["layout", "pin_memory", "memory_format", "implicit", "cudnn_enable", "out_int32"]);

function splitTopLevel(text) {
  const parts = [];
  let depth = 0;
  let part = "";
  for (const character of text) {
    if (character === "(" || character === "[") depth += 1;
    if (character === ")" || character === "]") depth -= 1;
    if (character === "," && depth === 0) {
      parts.push(part.trim());
      part = "";
    } else part += character;
  }
  if (part.trim() !== "") parts.push(part.trim());
  return parts;
}

/** "aten::add.Tensor(Tensor self, ...) -> Tensor" → its parts. */
function parseSchema(schema) {
  const open = schema.indexOf("(");
  const arrow = schema.lastIndexOf(") -> ");
  const parameters = [];
  let keywordOnly = false;
  for (const part of splitTopLevel(schema.slice(open + 1, arrow))) {
    if (part === "*") {
      keywordOnly = true;
      continue;
    }
    const equals = part.indexOf("=");
    const declaration = equals === -1 ? part : part.slice(0, equals);
    const space = declaration.lastIndexOf(" ");
    const type = declaration.slice(0, space).replace(/\([^)]*\)/gu, "");
    parameters.push({ name: declaration.slice(space + 1), type, hasDefault: equals !== -1, keywordOnly });
  }
  return { parameters, returns: schema.slice(arrow + 5), schema };
}

const operatorNames = [];
const constants = [];
function constantFor(fullName) {
  const constant = fullName
    .replace("aten::", "")
    .replace(/[^A-Za-z0-9]+$/u, (end) => "_IN_PLACE".repeat(end.length ? 1 : 0))
    .replace(/_\./u, "_IN_PLACE_")
    .replace(/\./u, "_")
    .toUpperCase();
  let unique = constant;
  while (constants.includes(unique)) unique += "_";
  constants.push(unique);
  operatorNames.push(fullName);
  return unique;
}

/** TypeScript type of a parameter, the expression that passes it, and the test that distinguishes overloads. */
function typeFacts(parameter) {
  let { type } = parameter;
  const optional = type.endsWith("?");
  if (optional) type = type.slice(0, -1);
  const orNull = optional ? " | null" : "";
  const orNullTest = (name, test) => (optional ? `(${name} === null || ${test})` : test);
  const list = /^(?<element>.*?)\[(?<length>\d*)\]$/u.exec(type);
  if (list !== null) {
    const { element, length } = list.groups;
    if (element === "Tensor") {
      return {
        ts: `readonly Tensor[]${orNull}`,
        pass: (name, op) => `handlesOf(${name}, ${op}, "${parameter.name}")`,
        test: (name) => orNullTest(name, `Array.isArray(${name})`),
      };
    }
    if (element === "Tensor?") {
      return {
        ts: `readonly (Tensor | null)[]${orNull}`,
        pass: (name, op) => `optionalHandlesOf(${name}, ${op}, "${parameter.name}")`,
        test: (name) => orNullTest(name, `Array.isArray(${name})`),
      };
    }
    const item = element === "bool" ? "boolean" : "number";
    if (length !== "") {
      return {
        ts: `number | readonly number[]${orNull}`,
        pass: (name) => name,
        test: (name) => orNullTest(name, `(typeof ${name} === "number" || Array.isArray(${name}))`),
      };
    }
    return {
      ts: `readonly ${item}[]${orNull}`,
      pass: (name) => name,
      test: (name) => orNullTest(name, `Array.isArray(${name})`),
    };
  }
  switch (type) {
    case "Tensor":
      return optional
        ? {
            ts: "Tensor | null",
            pass: (name, op) => `optionalHandleOf(${name}, ${op}, "${parameter.name}")`,
            test: (name) => `(${name} === null || isTensor(${name}))`,
          }
        : {
            ts: "Tensor",
            pass: (name, op) => `handleOf(${name}, ${op}, "${parameter.name}")`,
            test: (name) => `isTensor(${name})`,
          };
    case "Scalar":
      return {
        ts: `Scalar${orNull}`,
        pass: (name) => name,
        test: (name) => orNullTest(name, `isScalar(${name})`),
      };
    case "int":
    case "SymInt":
      if (parameter.name === "reduction") {
        return {
          ts: "Reduction",
          pass: (name, op) => `reductionCode(${name}, ${op})`,
          test: (name) => `typeof ${name} === "string"`,
        };
      }
      return {
        ts: `number${orNull}`,
        pass: (name) => name,
        test: (name) => orNullTest(name, `typeof ${name} === "number"`),
      };
    case "float":
      return {
        ts: `number${orNull}`,
        pass: (name) => name,
        test: (name) => orNullTest(name, `typeof ${name} === "number"`),
      };
    case "bool":
      return {
        ts: `boolean${orNull}`,
        pass: (name) => name,
        test: (name) => orNullTest(name, `typeof ${name} === "boolean"`),
      };
    case "str":
      return {
        ts: `string${orNull}`,
        pass: (name) => name,
        test: (name) => orNullTest(name, `typeof ${name} === "string"`),
      };
    case "ScalarType":
      return {
        ts: `DType${orNull}`,
        pass: (name, op) => `dtypeCode(${name}, ${op})`,
        test: (name) => `typeof ${name} === "string"`,
      };
    case "Device":
      return { ts: `Device${orNull}`, pass: (name) => name, test: (name) => `typeof ${name} === "string"` };
    case "Generator":
      return {
        ts: `Generator${orNull}`,
        pass: (name, op) => `generatorHandle(${name}, ${op})`,
        test: () => "true",
      };
    default:
      throw new Error(`no TypeScript type for ${parameter.type} ${parameter.name}`);
  }
}

const narrowStrings = {
  approximate: '"none" | "tanh"',
  rounding_mode: '"trunc" | "floor" | null',
  reduce: '"sum" | "prod" | "mean" | "amax" | "amin"',
  indexing: '"ij" | "xy"',
};

function readOverload(name, overload) {
  const fullName = overload === "" ? `aten::${name}` : `aten::${name}.${overload}`;
  const text = native.schema(fullName);
  if (text === null) throw new Error(`this libtorch has no ${fullName}`);
  const parsed = parseSchema(text);
  const isMethod = parsed.parameters[0]?.name === "self";
  const offered = parsed.parameters.filter(
    (parameter, index) => !(isMethod && index === 0) && !hidden.has(parameter.name),
  );
  return {
    ...parsed,
    constant: constantFor(fullName),
    isMethod,
    positional: offered.filter((parameter) => !parameter.keywordOnly),
    keyword: offered.filter((parameter) => parameter.keywordOnly),
  };
}

function returnType(overload) {
  const { returns } = overload;
  if (returns === "()") return "void";
  if (/^Tensor\([a-z]!\)$/u.test(returns)) return overload.isMethod ? "this" : "Tensor";
  const plain = returns.replace(/\([a-z!]+( -> \*)?\)/gu, "").trim();
  if (plain === "Tensor") return "Tensor";
  if (plain === "Tensor[]") return "Tensor[]";
  if (returns.startsWith("("))
    return `[${splitTopLevel(returns.slice(1, -1))
      .map(() => "Tensor")
      .join(", ")}]`;
  if (plain === "bool") return "boolean";
  if (["int", "float", "Scalar"].includes(plain)) return "number";
  throw new Error(`no TypeScript type for the result ${returns} of ${overload.schema}`);
}

const publicType = (parameter) =>
  narrowStrings[parameter.name] !== undefined && parameter.type.startsWith("str")
    ? narrowStrings[parameter.name]
    : typeFacts(parameter).ts;

function optionsType(overload) {
  const fields = overload.keyword.map((parameter) => {
    // An optional type without a default is still optional in PyTorch's own Python signature.
    const mandatory = !parameter.hasDefault && !parameter.type.endsWith("?");
    return `${camel(parameter.name)}${mandatory ? "" : "?"}: ${publicType(parameter)}`;
  });
  return `{ ${fields.join("; ")} }`;
}

function signature(overload) {
  const parts = [];
  // A TypeScript parameter may be left out only when all later ones may.
  const required = overload.positional.map((parameter) => !parameter.hasDefault);
  overload.positional.forEach((parameter, index) => {
    const mayBeLeftOut = !required.slice(index).some(Boolean);
    const type = publicType(parameter);
    parts.push(
      `${camel(parameter.name)}${mayBeLeftOut ? "?" : ""}: ${type}${!mayBeLeftOut && parameter.hasDefault ? " | undefined" : ""}`,
    );
  });
  if (overload.keyword.length > 0) {
    const mandatory = overload.keyword.some(
      (parameter) => !parameter.hasDefault && !parameter.type.endsWith("?"),
    );
    parts.push(`options${mandatory ? "" : "?"}: ${optionsType(overload)}`);
  }
  return `(${parts.join(", ")}): ${returnType(overload)}`;
}

/** The call itself, with `names` for the positional arguments and `options` for the trailing object. */
function callExpression(overload, names, options, leftOver = []) {
  const passed = overload.parameters.map((parameter, index) => {
    if (overload.isMethod && index === 0) return "this.handle";
    if (hidden.has(parameter.name)) return "undefined";
    const position = overload.positional.indexOf(parameter);
    const name = position === -1 ? `${options}?.${camel(parameter.name)}` : names[position];
    return typeFacts(parameter).pass(name, overload.constant);
  });
  // Arguments that this overload does not have are also passed, so that the engine counts and refuses them.
  if (leftOver.length > 0) passed.push(...leftOver);
  else while (passed.at(-1) === "undefined") passed.pop();
  return `call(${[overload.constant, ...passed].join(", ")})`;
}

function returnStatement(overload, expression) {
  switch (returnType(overload)) {
    case "this":
      return `${expression};\n    return this;`;
    case "void":
      return `${expression};`;
    case "Tensor":
      return `return wrap(${expression});`;
    case "Tensor[]":
      return `return wrapAll(${expression});`;
    case "boolean":
      return `return ${expression} as boolean;`;
    case "number":
      return `return ${expression} as number;`;
    default:
      return `return wrapAll(${expression}) as ${returnType(overload)};`;
  }
}

function documentation(overloads) {
  return `/** ${overloads.map((overload) => `\`${overload.schema}\``).join(" · ")} */`;
}

/**
 * Arguments that have defaults may also be named in an options object right after the required ones:
 * x.topk(5, { largest: false }) instead of x.topk(5, -1, false).
 */
function withNamedForm(overload, index, overloads) {
  const required = overload.positional.findLastIndex((parameter) => !parameter.hasDefault) + 1;
  const isLast = index === overloads.length - 1;
  if (required === overload.positional.length || (required === 0 && !isLast)) return [overload];
  const named = {
    ...overload,
    positional: overload.positional.slice(0, required),
    keyword: [...overload.positional.slice(required), ...overload.keyword],
    isNamedForm: true,
  };
  return [named, overload];
}

function emit(name, schemas) {
  const { isMethod } = schemas[0];
  const overloads = schemas.flatMap(withNamedForm);
  const publicName = camel(name.replace(/_$/u, "")) + (name.endsWith("_") ? "_" : "");
  const prefix = isMethod ? "" : "export function ";
  if (overloads.length === 1) {
    const [overload] = overloads;
    const names = overload.positional.map((parameter) => camel(parameter.name));
    return {
      isMethod,
      text: `${documentation(overloads)}\n${prefix}${publicName}${signature(overload)} {\n    ${returnStatement(overload, callExpression(overload, names, "options"))}\n  }`,
    };
  }
  const width = Math.max(
    ...overloads.map((overload) => overload.positional.length + (overload.keyword.length > 0 ? 1 : 0)),
  );
  const names = Array.from({ length: width }, (_, index) => `argument${index}`);
  const bodies = overloads.map((overload, index) => {
    const optionsName = names[overload.positional.length];
    const options =
      overload.keyword.length > 0
        ? `const options = optionsOf(${optionsName}, ${overload.constant}) as ${optionsType(overload)} | undefined;\n`
        : "";
    const used = overload.positional.length + (overload.keyword.length > 0 ? 1 : 0);
    const call = callExpression(overload, names, "options", names.slice(used));
    const statement = options + returnStatement(overload, call);
    if (index === overloads.length - 1) return statement;
    const tests = overload.positional
      .map((parameter, position) => ({ parameter, position }))
      // A position with the same type everywhere does not distinguish.
      .filter(
        ({ parameter, position }) =>
          !schemas.every((other) => other.positional[position]?.type === parameter.type),
      )
      .map(({ parameter, position }) => {
        const test = typeFacts(parameter).test(names[position]);
        return parameter.hasDefault ? `(${names[position]} === undefined || ${test})` : test;
      });
    if (overload.isNamedForm) tests.push(`isOptions(${names[overload.positional.length]})`);
    else if (overload.positional.length === 0 && overload.keyword.length > 0)
      tests.push(`isOptions(${names[0]})`);
    if (tests.length === 0) throw new Error(`${overload.schema} cannot be told apart`);
    return `if (${tests.join(" && ")}) {\n ${statement}\n }`;
  });
  const implementation = `${publicName}(${names.map((argument) => `${argument}?: unknown`).join(", ")}): ${[...new Set(overloads.map(returnType))].join(" | ")}`;
  const declarations = overloads.map(
    (overload) => `/** \`${overload.schema}\` */\n${prefix}${publicName}${signature(overload)};`,
  );
  return {
    isMethod,
    text: `${declarations.join("\n")}\n${prefix}${implementation} {\n    ${bodies.join("\n    ")}\n  }`,
  };
}

/** A parameter that is keyword-only in one overload is so in all, for example `add`'s alpha. */
function alignKeywords(overloads) {
  const keywords = new Set(
    overloads.flatMap((overload) => overload.keyword.map((parameter) => parameter.name)),
  );
  for (const overload of overloads) {
    overload.keyword.push(...overload.positional.filter((parameter) => keywords.has(parameter.name)));
    overload.positional = overload.positional.filter((parameter) => !keywords.has(parameter.name));
  }
  return overloads;
}

const emitted = operatorTable.map(([name, ...overloads]) => {
  const read = overloads.map((overload) => readOverload(name, overload));
  // sort and argsort keep both styles: positional without `stable`, by keyword with it.
  return emit(name, name.endsWith("sort") ? read : alignKeywords(read));
});
for (const name of internalOperators) {
  if (native.schema(name) === null) throw new Error(`this libtorch has no ${name}`);
  constantFor(name);
}
const internalStart = constants.length - internalOperators.length;
for (const name of Object.keys(laterOperators)) constantFor(name);
const output = `// Generated by scripts/generate-operators.mjs from scripts/operator-table.mjs and libtorch's schemas. Do not edit.
import type { Device, DType } from "./dtype.js";
import type { Generator } from "./generator.js";
import { call } from "./exchange.js";
import {
  dtypeCode, generatorHandle, handleOf, handlesOf, isOptions, isScalar, isTensor, optionalHandleOf,
  optionalHandlesOf, optionsOf, reductionCode, TensorHandle, wrap, wrapAll, type Reduction, type Scalar,
} from "./operator-call.js";
import type { Tensor } from "./tensor.js";

${constants.map((constant, index) => `${index >= internalStart ? "export " : ""}const ${constant} = ${index};`).join("\n")}

/** Operators as methods: those whose schema's first argument is \`self\`. */
export abstract class TensorOperators extends TensorHandle {
  ${emitted
    .filter((item) => item.isMethod)
    .map((item) => item.text)
    .join("\n\n  ")}
}

${emitted
  .filter((item) => !item.isMethod)
  .map((item) => item.text)
  .join("\n\n")}
`;
const namesOutput = `// Generated by scripts/generate-operators.mjs. Do not edit.

/** Operators by index, as the wrappers call them. */
export const operatorNames: readonly string[] = ${JSON.stringify(operatorNames)};
`;
writeFileSync(resolve(packageFolder, "src", "operators.generated.ts"), output);
// The schemas of the wrappers: a test compares them with the loaded libtorch.
const schemas = Object.fromEntries(
  operatorNames.map((name) => [name, laterOperators[name] ?? native.schema(name)]),
);
writeFileSync(
  resolve(packageFolder, "test", "golden", "schemas.json"),
  `${JSON.stringify(schemas, null, 1)}\n`,
);
writeFileSync(resolve(packageFolder, "src", "operator-names.generated.ts"), namesOutput);
console.log(`${operatorTable.length} names, ${operatorNames.length} operators`);
