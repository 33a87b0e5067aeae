import { expect, test } from "vitest";
import { json, loopback, type Responder } from "../../../http/test/loopback.js";
import { runCommand } from "../support/run-command.js";

const never: Responder = () => {
  throw new Error("only the probe may ask");
};

const doctor = (baseURL: string, ...more: string[]) =>
  runCommand("doctor", "--server", baseURL, "--model", "m", ...more);

test("shows what a conforming server does, which a run would record", async () => {
  const { baseURL, calls } = await loopback(never);
  const { code, out } = await doctor(baseURL);
  expect(code).toBe(0);
  const row = (name: string) => new RegExp(`^${name}  +(.*)$`, "mu").exec(out)![1]!.trim();
  expect(row("base URL")).toBe(baseURL);
  expect(row("token limit")).toBe("max_tokens: respected");
  expect(row("token counts")).toBe("reported");
  expect(row("parameters rejected")).toBe("none");
  expect(row("parameters ignored")).toBe("none");
  expect(row("seed")).toBe("equal seeds give equal answers");
  expect(out).toContain(`${calls()} calls, `);
});

test("as JSON: what a server refuses and ignores, with a key from the environment", async () => {
  process.env["DOCTOR_KEY"] = "sk-doctor-secret";
  try {
    const keys = new Set<string | undefined>();
    const { baseURL } = await loopback(never, {
      // Refuses top_k, reads no seed, and gives no token counts.
      probe: (one, response) => {
        keys.add(one.headers.authorization);
        if (one.body["top_k"] !== undefined) {
          json(response, 400, { error: { message: "Unrecognized request argument: top_k" } });
          return;
        }
        json(response, 200, {
          model: "m-2026",
          choices: [
            { index: 0, message: { role: "assistant", content: `one ${one.call}` }, finish_reason: "stop" },
          ],
        });
      },
    });
    const { code, out, ...given } = await doctor(baseURL, "--api-key-env", "DOCTOR_KEY", "--json");
    expect(code).toBe(0);
    expect(JSON.parse(out)).toMatchObject({
      baseURL,
      server: {
        model: "m-2026",
        limit: "max_tokens",
        limit_holds: null,
        omitted: ["top_k"],
        seed_repeats: false,
      },
      counts: false,
      prompt_logprobs: null,
    });
    expect([...keys]).toEqual(["Bearer sk-doctor-secret"]);
    expect(out + given.err).not.toContain("doctor-secret");
  } finally {
    delete process.env["DOCTOR_KEY"];
  }
});

test("with the API of completions, tells whether the server reads prompts", async () => {
  const { baseURL } = await loopback(
    (one, response) => {
      const text = one.body.prompt!;
      const words = text.match(/\S+\s*/gu)!;
      const offsets = words.map((_, at) => words.slice(0, at).join("").length);
      json(response, 200, {
        model: "m",
        choices: [
          {
            index: 0,
            text,
            finish_reason: "length",
            logprobs: {
              tokens: words,
              token_logprobs: words.map((_, at) => (at === 0 ? null : -1)),
              text_offset: offsets,
            },
          },
        ],
        usage: { prompt_tokens: 7, completion_tokens: 0 },
      });
    },
    {
      probe: (one, response) =>
        json(response, 200, {
          model: "m",
          choices: [{ index: 0, text: `one ${one.body.seed}`, finish_reason: "length" }],
          usage: { prompt_tokens: 7, completion_tokens: 4 },
        }),
    },
  );
  const { code, out, err } = await doctor(baseURL, "--api", "completions", "--json");
  expect([code, err]).toEqual([0, ""]);
  expect(JSON.parse(out)).toMatchObject({ prompt_logprobs: true, server: { limit_holds: true } });
});

test("a server that does not answer, and options without their other one, end with an error", async () => {
  const { baseURL, close } = await loopback(never);
  await close();
  const silent = await doctor(baseURL);
  expect([silent.code, silent.err]).toEqual([
    2,
    expect.stringMatching(/no answer from .*check baseURL and model/u),
  ]);
  const unnamed = await runCommand("doctor", "--server", baseURL);
  expect([unnamed.code, unnamed.err]).toEqual([2, expect.stringContaining("--server: requires --model")]);
  const alone = await runCommand("doctor", "--model", "m");
  expect([alone.code, alone.err]).toEqual([2, expect.stringContaining("--model: requires --server")]);
});
