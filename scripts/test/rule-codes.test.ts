import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

const filesIn = (kind: "src" | "test") =>
  readdirSync(join(root, "packages")).flatMap((name) => {
    const folder = join(root, "packages", name, kind);
    try {
      return readdirSync(folder, { recursive: true, encoding: "utf8" })
        .filter((path) => /\.tsx?$/u.test(path))
        .map((path) => join(folder, path));
    } catch {
      return [];
    }
  });

function nodesOf(path: string): ts.Node[] {
  const nodes: ts.Node[] = [];
  const visit = (node: ts.Node) => {
    nodes.push(node);
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true));
  return nodes;
}

const sources = filesIn("src").map(nodesOf);
const tests = filesIn("test").map(nodesOf);

/** The codes of an expression: a literal, or those of both cases of a condition. */
function literalsOf(node: ts.Expression | undefined): string[] {
  if (node === undefined) return [];
  if (ts.isStringLiteralLike(node)) return [node.text];
  if (ts.isConditionalExpression(node)) return [node.whenTrue, node.whenFalse].flatMap(literalsOf);
  return ts.isTemplateExpression(node) ? [node.getText().slice(1, -1)] : [];
}

/** Codes where an error is created, and in properties and constants named `rule`. */
const stated = sources.flat().flatMap((node) => {
  if (ts.isNewExpression(node) && /^(Usage|Budget)Error$/u.test(node.expression.getText())) {
    return literalsOf(node.arguments![0]);
  }
  if (ts.isPropertyAssignment(node) && node.name.getText() === "rule") return literalsOf(node.initializer);
  return [];
});

const asserted = tests
  .flat()
  .flatMap((node) =>
    ts.isCallExpression(node) && node.expression.getText() === "breaking"
      ? literalsOf(node.arguments[0])
      : [],
  );

describe("rule codes", () => {
  test("are in kebab case", () => {
    expect(stated.length).toBeGreaterThan(0);
    const part = String.raw`([a-z0-9]+|\$\{\w+\})`;
    const isCode = new RegExp(`^${part}(-${part})*$`, "u");
    expect([...new Set(stated)].filter((code) => !isCode.test(code))).toEqual([]);
  });

  test("that a test asserts are those of a source", () => {
    const literals = new Set(
      sources.flat().flatMap((node) => (ts.isStringLiteralLike(node) ? [node.text] : [])),
    );
    expect(asserted.length).toBeGreaterThan(0);
    expect([...new Set(asserted)].filter((code) => !literals.has(code))).toEqual([]);
  });
});
