/**
 * Mutates a hub's responses (the listing of a repository: names, sizes, checksums) and downloads from it.
 *
 *     node --import tsx packages/lm/fuzz/hub-listings.ts --cases 10000 --seed 1
 */
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { downloadModel, hubSettings } from "../src/hub/index.js";
import { resolveCheckpoint } from "../src/resolve-checkpoint.js";
import { fuzz } from "./harness.js";
import { mutatedFile, mutateJson } from "./mutate-json.js";
import type { Random } from "./random.js";

const MODEL = "owner/name";
const COMMIT = "89abcdef0123456789abcdef0123456789abcdef";
const content = Buffer.from("{}");
const etag = createHash("sha1").update(`blob ${content.length}\0`).update(content).digest("hex");
const sha256 = createHash("sha256").update(content).digest("hex");

const names = [
  "..",
  ".",
  "",
  "/",
  "//",
  "a",
  "a/b",
  "a/b/c",
  "A",
  "a/..",
  "../x",
  "/etc/x",
  "a\0",
  "\\..\\x",
  "C:\\x",
  "x".repeat(255),
  "x".repeat(256),
  "é",
  "\ud800",
  "con",
  "a ",
  ".git/config",
  "../../refs/main",
  "a/./b",
  "refs",
  "blobs",
  `${"d/".repeat(300)}f`,
  "%2e%2e/x",
  "?a#b",
  "config.json/x",
  "config.json",
];

let answer: Buffer;
let server: ReturnType<typeof createServer>;

function listing(random: Random): unknown {
  const file = (rfilename: string) =>
    random.once(3)
      ? { rfilename, size: 2, blobId: etag, lfs: { sha256 } }
      : { rfilename, size: 2, blobId: etag };
  const honest = ["config.json", "tokenizer.json", "model.safetensors"].map(file);
  const odd = Array.from({ length: random.below(3) }, () => file(random.pick(names)));
  const all = { sha: COMMIT, siblings: random.once(2) ? [...honest, ...odd] : [...odd, ...honest] };
  return random.once(2) ? all : mutateJson(all, random);
}

await fuzz(import.meta.url, {
  name: "hub listings",
  begin: async () => {
    server = createServer((request, response) => {
      response.end(request.url!.startsWith("/api/") ? answer : content);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return () => {
      server.closeAllConnections();
      server.close();
    };
  },
  runCase: async (random) => {
    // Files with equal content wait for each other, a tenth of a second each time: rarely, so that there are many
    // cases.
    const parallel = random.once(20) ? 4 : 1;
    const root = mkdtempSync(join(tmpdir(), "fuzz-"));
    const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const environment = {
      HF_HUB_CACHE: join(root, "cache"),
      HF_ENDPOINT: endpoint,
      HF_HUB_DISABLE_IMPLICIT_TOKEN: "1",
    };
    const options = { settings: hubSettings(environment), retryDelay: 0, stallTimeout: 1000, parallel };
    try {
      // Twice: the files left by the first must not break the second.
      for (let times = 0; times < 2; times++) {
        answer = random.once(12)
          ? mutatedFile(listing(random), random)
          : Buffer.from(JSON.stringify(listing(random)) ?? "");
        const attempt = random.once(4) ? resolveCheckpoint(MODEL, options) : downloadModel(MODEL, options);
        const failed = await attempt.then(
          () => null,
          (error: unknown) => ({ error }),
        );
        checkConfined(root);
        if (
          failed !== null &&
          (times === 1 || !(failed.error instanceof Error) || failed.error.name !== "UsageError")
        )
          throw failed.error;
      }
    } finally {
      rmSync(root, { recursive: true });
    }
  },
  namesPlace: (message) => message.includes(MODEL),
});

/** Nothing is written next to the cache, and in the cache nothing next to the model's folder. */
function checkConfined(root: string): void {
  const beside = readdirSync(root).filter((name) => name !== "cache");
  if (beside.length > 0) throw new Error(`written outside of the cache: ${beside.join(", ")}`);
  if (!readdirSync(root).includes("cache")) return;
  const inside = readdirSync(join(root, "cache")).filter((name) => name !== "models--owner--name");
  if (inside.length > 0) throw new Error(`written outside of the model's folder: ${inside.join(", ")}`);
  const parts =
    inside.length === 0 && readdirSync(join(root, "cache")).length > 0
      ? readdirSync(join(root, "cache", "models--owner--name"))
      : [];
  const odd = parts.filter((name) => !["blobs", "refs", "snapshots"].includes(name));
  if (odd.length > 0) throw new Error(`written next to the snapshots: ${odd.join(", ")}`);
}
