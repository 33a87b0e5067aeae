import { parentPort, workerData } from "node:worker_threads";
import { ApiError } from "./api-error.js";
import { RequestReader, type Endpoint, type ReadModel, type ReadRequest } from "./reading.js";

/** The thread's messages; the first one reports that it is ready. */
export type ReaderAnswer =
  | { kind: "ready"; limits: Readonly<Record<Endpoint, number>> }
  | { kind: "read"; request: ReadRequest }
  | { kind: "refused"; status: number; message: string; code: string | null; param: string | null }
  | { kind: "failed"; message: string };

// Parses requests in a thread separate from generation, so that a long text does not block other requests.
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
