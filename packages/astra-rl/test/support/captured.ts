import type { Streams } from "@astra-rl/assembly/program";

/** Streams that keep what is written to them. */
export function captured({ terminal = false, columns = 40, rows = 24 } = {}): {
  streams: Streams;
  out: () => string;
  err: () => string;
} {
  const texts = { out: "", err: "" };
  return {
    streams: {
      stdout: { write: (text) => (texts.out += text) },
      stderr: { write: (text) => (texts.err += text), isTTY: terminal, columns, rows },
    },
    out: () => texts.out,
    err: () => texts.err,
  };
}
