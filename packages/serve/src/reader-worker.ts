import { parentPort, workerData } from "node:worker_threads";
import { ApiError } from "./api-error.js";
import { RequestReader, type Endpoint, type ReadModel, type ReadRequest } from "./reading.js";

/** What the thread answers; the first one says that it can read. */
export type ReaderAnswer =
  | { kind: "ready"; limits: Readonly<Record<Endpoint, number>> }
  | { kind: "read"; request: ReadRequest }
  | { kind: "refused"; status: number; message: string; code: string | null; param: string | null }
  | { kind: "failed"; message: string };

// Reads requests beside the thread that generates: a long text keeps no one else's waiting.
const reader = new RequestReader(workerData as readonly ReadModel[]);

function answer({ endpoint, bytes }: { endpoint: Endpoint; bytes: Uint8Array }): ReaderAnswer {
  try {
    return { kind: "read", request: reader.read(endpoint, bytes) };
  } catch (error) {
    if (!(error instanceof ApiError)) return { kind: "failed", message: String((error as Error).stack) };
    const { status, message, code, param } = error;
    return { kind: "refused", status, message, code, param };
  }
}

parentPort!.on("message", (given: { endpoint: Endpoint; bytes: Uint8Array }) => {
  parentPort!.postMessage(answer(given));
});
parentPort!.postMessage({ kind: "ready", limits: reader.limits } satisfies ReaderAnswer);
