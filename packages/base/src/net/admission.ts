import type { IncomingHttpHeaders } from "node:http";
import { isLoopback } from "./loopback.js";

/**
 * Why a server on this machine refuses a request; null: it is allowed. A page in a browser may reach
 * loopback as another site, which its `Origin` and `Sec-Fetch-Site` show, or under its own name (DNS rebinding).
 *
 * @param isLocal whether the server listens on loopback only
 */
export function refusalOf(headers: IncomingHttpHeaders, isLocal: boolean): string | null {
  const { host, origin } = headers;
  if (isLocal && !isLoopback(host)) return "this server accepts requests to 127.0.0.1 or localhost only";
  const site = headers["sec-fetch-site"];
  const isForeign =
    (origin !== undefined && origin !== `http://${host}`) ||
    (site !== undefined && site !== "same-origin" && site !== "none");
  return isForeign ? "this server rejects requests from pages of other sites" : null;
}
