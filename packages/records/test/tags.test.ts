import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { temporaryFolder } from "../../method/test/training/temporary-folder.js";
import { compareFrameworks } from "../../../scripts/frameworks.mjs";
import { evaluationTagsSchema, FRAMEWORKS, tagged, tagOf, tagPhrases, tagsOf } from "../src/index.js";

describe("tags", () => {
  it("are entries of the lists, with the publishers' names", () => {
    expect(tagOf("owasp-llm-2026/LLM03:2026")).toMatchObject({ name: "Excessive Agency" });
    expect(tagOf("owasp-llm-2025/LLM03:2025")).toMatchObject({ name: "Supply Chain" });
    expect(tagOf("owasp-agentic-2026/ASI01")).toMatchObject({ name: "Agent Goal Hijack" });
    expect(tagOf("mitre-atlas/AML.T0051.001")).toMatchObject({ name: "Indirect" });
    for (const text of [
      "owasp-llm-2025/LLM03:2026",
      "mitre-atlas/AML.T9999",
      "none",
      "toString/x",
      "mitre-atlas",
    ])
      expect(tagOf(text)).toBeNull();
    expect(tagPhrases(["nist-ai-600-1/2.3"])[0]).toMatch(
      /^2\.3 Dangerous, Violent, or Hateful Content \(NIST/u,
    );
  });

  it("that do not exist are refused by name, with a near one", () => {
    const { error } = evaluationTagsSchema.safeParse(["owasp-llm-2025/LLM1:2025"]);
    expect(JSON.stringify(error!.issues)).toContain("did you mean owasp-llm-2025/LLM01:2025");
    expect(evaluationTagsSchema.safeParse([]).success).toBe(false);
    expect(evaluationTagsSchema.safeParse("none").success).toBe(true);
  });

  it("are those of a goal by its id, then its category, then the evaluation's", () => {
    const goals = [{ id: "a", category: "privacy" }, { id: "b", category: "privacy" }, { id: "c" }];
    const given = { privacy: ["nist-ai-600-1/2.4"], b: "none" as const };
    const { goals: own, tags } = tagged(given, goals, "evaluation.tags");
    expect([tags, own.map((goal) => goal.tags)]).toEqual([
      undefined,
      [["nist-ai-600-1/2.4"], "none", undefined],
    ]);
    const record = { measured: { tags: ["nist-ai-600-1/2.3"] }, goals: own };
    expect(["a", "b", "c", undefined].map((id) => tagsOf(record, id))).toEqual([
      ["nist-ai-600-1/2.4"],
      "none",
      ["nist-ai-600-1/2.3"],
      ["nist-ai-600-1/2.3"],
    ]);
    expect(() => tagged({ privcy: "none" }, goals, "evaluation.tags")).toThrow(
      breaking("unknown-goal", "evaluation.tags.privcy"),
    );
  });

  it("in documents and examples are in the lists, with their names", () => {
    const root = fileURLToPath(new URL("../../../", import.meta.url));
    const pages = ["docs", "docs/guides", "examples"].flatMap((folder) =>
      readdirSync(join(root, folder), { withFileTypes: true })
        .filter((entry) => entry.isFile() && /\.(?:md|ya?ml)$/u.test(entry.name))
        .map((entry) => readFileSync(join(root, folder, entry.name), "utf8")),
    );
    const names = Object.keys(FRAMEWORKS).join("|");
    const used = pages.flatMap((page) => [...page.matchAll(new RegExp(`\\b(?:${names})/[\\w.:]*\\w`, "gu"))]);
    expect(used.length).toBeGreaterThan(3);
    for (const [text] of used) expect([text, tagOf(text)]).not.toEqual([text, null]);
    // A table row names the entry beside its tag.
    const rows = pages.flatMap((page) => [
      ...page.matchAll(new RegExp(`^\\| \`((?:${names})/[^\`]+)\` +\\| ([^|]+?) +\\|`, "gmu")),
    ]);
    expect(rows.length).toBeGreaterThan(3);
    for (const [, text, name] of rows) expect([text, tagOf(text!)?.name]).toEqual([text, name]);
  });
});

describe("the table of frameworks", () => {
  it("has a source for each, and no empty or repeated entry", () => {
    for (const { source, entries, version } of Object.values(FRAMEWORKS)) {
      expect(version).toMatch(/\d/u);
      if ("commit" in source) expect(source.commit).toMatch(/^[0-9a-f]{40}$/u);
      const names = Object.values(entries) as string[];
      expect(names.every((name) => name.trim() === name && name !== "")).toBe(true);
    }
  });

  it("is compared with the publishers' files: names, missing and further entries, and versions", () => {
    const folder = temporaryFolder();
    writeFileSync(
      join(folder, "ATLAS.yaml"),
      "version: 9.9.9\nmatrices: [{ techniques: [{ id: AML.T0051, name: Other }, { id: AML.T1, name: New }] }]\n",
    );
    const year = join(folder, "GenAI-LLM-Top10", "2025");
    mkdirSync(year, { recursive: true });
    for (const [id, name] of Object.entries(FRAMEWORKS["owasp-llm-2025"].entries))
      writeFileSync(join(year, `${id.slice(0, 5)}_x.md`), `## ${id} ${name}\n\nText.\n`);
    const { differences, missing } = compareFrameworks(FRAMEWORKS, folder);
    expect(missing).toEqual(["owasp-llm-2026", "owasp-agentic-2026", "nist-ai-600-1"]);
    expect(differences).toContain("mitre-atlas: version 5.6.0, published 9.9.9");
    expect(differences).toContain("mitre-atlas/AML.T0051: LLM Prompt Injection, published Other");
    expect(differences).toContain("mitre-atlas/AML.T1: missing, published New");
    expect(differences).toContain("mitre-atlas/AML.T0054: LLM Jailbreak, published nothing");
    expect(differences.filter((line: string) => line.startsWith("owasp"))).toEqual([]);
  });
});
