import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { BoundedTemplate } from "../src/bounded-template.js";

/** A Python with transformers and TRL, whose package holds chat templates of published models. */
const PYTHON = process.env["ASTRA_PYTHON"] ?? "";
const isThere =
  PYTHON !== "" && spawnSync(PYTHON, ["-c", "import transformers, trl"], { stdio: "ignore" }).status === 0;
if (!isThere) {
  process.stderr.write(
    "trl-templates.test.ts: TRL's templates are not tried: set ASTRA_PYTHON to a Python with trl, or run npm run nightly\n",
  );
}

interface Row {
  messages: unknown;
  prompt: boolean;
  variables: Record<string, unknown>;
  text?: string;
  error?: string;
}

describe.skipIf(!isThere)("the chat templates of the installed TRL package", () => {
  it("render as in Python, every one for 24 conversations", () => {
    const script = fileURLToPath(new URL("golden/render_trl_templates.py", import.meta.url));
    const { stdout, stderr } = spawnSync(PYTHON, [script], { encoding: "utf8", maxBuffer: 2 ** 28 });
    expect(stdout, stderr).not.toBe("");
    const { cases } = JSON.parse(stdout) as { cases: { name: string; template: string; rows: Row[] }[] };
    const different: unknown[] = [];
    let equal = 0;
    for (const { name, template, rows } of cases) {
      const compiled = new BoundedTemplate(template, name);
      for (const { messages, prompt, variables, text } of rows) {
        let here: string | null = null;
        let why = "";
        try {
          const given = {
            messages,
            tools: null,
            documents: null,
            add_generation_prompt: prompt,
            ...variables,
          };
          here = compiled.render(given, new Date(2026, 1, 3));
        } catch (error) {
          why = (error as Error).message;
        }
        if (here === (text ?? null)) equal++;
        else different.push({ name, here, why, python: text });
      }
    }
    expect(different).toEqual([]);
    expect(equal).toBeGreaterThanOrEqual(24 * cases.length);
    expect(cases.length).toBeGreaterThan(50);
  });
});
