import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { UsageError } from "../errors.js";

const LOOPBACK = ["127.0.0.1", "localhost", "::1"];

/** Whether an address, or a Host header with its port, is loopback. */
export function isLoopback(host = ""): boolean {
  return LOOPBACK.includes(host) || LOOPBACK.includes(host.replace(/:\d+$/u, "").replace(/^\[|\]$/gu, ""));
}

/** @returns the server's URL @throws UsageError for an address that cannot be listened on */
export async function listen(server: Server, host: string, port: number): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const reason = error.code === "EADDRINUSE" ? "the port is in use" : error.message;
      reject(
        new UsageError(
          "cannot-listen",
          `cannot listen on ${host}:${port}: ${reason}; choose another --port or --host`,
        ),
      );
    });
    server.listen(port, host, resolve);
  });
  const { address, port: taken, family } = server.address() as AddressInfo;
  return `http://${family === "IPv6" ? `[${address}]` : address}:${taken}`;
}
