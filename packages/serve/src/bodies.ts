import type { IncomingMessage } from "node:http";
import { ApiError } from "./api-error.js";

const MOST_BYTES = 8 * 2 ** 20;
/** Total bytes of all requests that are being received and parsed. */
const MOST_BYTES_HELD = 512 * 2 ** 20;

/** Receives the bodies of requests, within limits. */
export class Bodies {
  #held = 0;

  /**
   * @param most bytes of the longest request that may fit the window: longer ones are not stored
   * @throws ApiError for a content type other than JSON, and for requests that are too large
   */
  async receive(request: IncomingMessage, most: number): Promise<Uint8Array> {
    checkHeaders(request);
    const parts: Buffer[] = [];
    let length = 0;
    try {
      for await (const part of request as AsyncIterable<Buffer>) {
        length += part.length;
        this.#held += part.length;
        if (length > MOST_BYTES) throw tooLarge();
        if (length > most) {
          // The rest is received, since clients send everything before they read the answer.
          parts.length = 0;
          continue;
        }
        if (this.#held > MOST_BYTES_HELD) {
          const headers = { "retry-after": "1", connection: "close" };
          throw new ApiError(429, "too many long requests at a time; try again later", null, null, headers);
        }
        parts.push(part);
      }
    } finally {
      this.#held -= length;
    }
    if (length <= most) return joined(parts, length);
    throw new ApiError(
      400,
      `the request has ${length} bytes, more than any text that fits this server's window; shorten it`,
      "context_length_exceeded",
    );
  }
}

/** In separate memory, which can be transferred to another thread. */
function joined(parts: readonly Buffer[], length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

const tooLarge = () =>
  new ApiError(413, `a request must have at most ${MOST_BYTES / 2 ** 20} MiB`, null, null, {
    connection: "close",
  });

/** A page of another site can send a form or a text without a preflight request, but no JSON. */
function checkHeaders({ headers }: IncomingMessage): void {
  const type = headers["content-type"]?.split(";")[0]!.trim().toLowerCase();
  const close = { connection: "close" };
  if (type !== "application/json") {
    throw new ApiError(415, "the content type must be application/json", null, null, close);
  }
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    const rule = `the content must not be encoded, got ${JSON.stringify(encoding.slice(0, 40))}`;
    throw new ApiError(415, `${rule}; leave Content-Encoding out`, null, null, {
      ...close,
      "accept-encoding": "identity",
    });
  }
  if (Number(headers["content-length"] ?? 0) > MOST_BYTES) throw tooLarge();
}
