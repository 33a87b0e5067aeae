import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hubSettings } from "../../src/hub/index.js";
import type { HubOptions } from "../../src/resolve-checkpoint.js";

/** A hub on the loopback interface whose repositories are maps from file names to contents. */
export interface FolderHub {
  /** "owner/name" → its files; may change between requests. */
  repositories: Map<string, Map<string, Uint8Array>>;
  /** Answers every request with this status instead; null = normal. */
  refusal: number | null;
  /** Requested paths, in order. */
  requests: string[];
  /** Options that use this hub with a separate cache. */
  options(environment?: NodeJS.ProcessEnv): HubOptions;
  close(): Promise<void>;
}

export const COMMIT = "89abcdef0123456789abcdef0123456789abcdef";

/** The files of a folder, as a repository. */
export function filesOf(folder: string): Map<string, Uint8Array> {
  return new Map(readdirSync(folder).map((name) => [name, readFileSync(join(folder, name))]));
}

const digest = (algorithm: string, ...parts: (string | Uint8Array)[]) =>
  parts.reduce((hash, part) => hash.update(part), createHash(algorithm)).digest("hex");

function listing(files: Map<string, Uint8Array>): string {
  const siblings = [...files].map(([rfilename, content]) => ({
    rfilename,
    size: content.length,
    blobId: digest("sha1", `blob ${content.length}\0`, content),
    ...(rfilename.endsWith(".safetensors") ? { lfs: { sha256: digest("sha256", content) } } : {}),
  }));
  return JSON.stringify({ sha: COMMIT, siblings });
}

export async function openFolderHub(): Promise<FolderHub> {
  const root = mkdtempSync(join(tmpdir(), "folder-hub-"));
  const server = createServer((request, response) => {
    const path = decodeURIComponent(request.url!.replace(/\?.*$/, ""));
    hub.requests.push(path);
    if (hub.refusal !== null) {
      response.writeHead(hub.refusal).end();
      return;
    }
    const listed = /^\/api\/(?:models|datasets)\/([^/]+\/[^/]+)\/revision\//.exec(path);
    const asked = /^\/(?:datasets\/)?([^/]+\/[^/]+)\/resolve\/[^/]+\/(.+)$/.exec(path);
    const files = hub.repositories.get((listed ?? asked)?.[1] ?? "");
    const answer = files && (listed ? listing(files) : files.get(asked![2]!));
    if (answer === undefined) response.writeHead(404).end();
    else response.end(answer);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const hub: FolderHub = {
    repositories: new Map(),
    refusal: null,
    requests: [],
    options: (environment = {}) => ({
      settings: hubSettings({
        HF_HUB_CACHE: join(root, "cache"),
        HF_ENDPOINT: `http://127.0.0.1:${port}`,
        HF_HUB_DISABLE_IMPLICIT_TOKEN: "1",
        ...environment,
      }),
      retryDelay: 1,
    }),
    close: async () => {
      if (server.listening) {
        server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
      }
      if (existsSync(root)) rmSync(root, { recursive: true });
    },
  };
  return hub;
}
