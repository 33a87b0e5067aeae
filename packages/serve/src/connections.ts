import type { Socket } from "node:net";

/** Connections of a server, and the number of requests in progress on each. */
export class Connections {
  readonly #answering = new Map<Socket, number>();

  add(socket: Socket): void {
    this.#answering.set(socket, 0);
    socket.on("close", () => this.#answering.delete(socket));
  }

  /** A complete request was received. @returns a function to call when it is answered */
  begin(socket: Socket): () => void {
    const change = (by: number) => {
      const count = this.#answering.get(socket);
      if (count !== undefined) this.#answering.set(socket, count + by);
    };
    change(1);
    return () => change(-1);
  }

  /** Closes idle connections. */
  closeUnused(): void {
    for (const [socket, count] of this.#answering) if (count === 0) socket.destroy();
  }
}
