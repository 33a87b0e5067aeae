import type { Socket } from "node:net";

/** Connections of a server, and how many requests of each are being answered. */
export class Connections {
  readonly #answering = new Map<Socket, number>();

  add(socket: Socket): void {
    this.#answering.set(socket, 0);
    socket.on("close", () => this.#answering.delete(socket));
  }

  /** A request was received whole. @returns called when it is answered */
  begin(socket: Socket): () => void {
    const change = (by: number) => {
      const count = this.#answering.get(socket);
      if (count !== undefined) this.#answering.set(socket, count + by);
    };
    change(1);
    return () => change(-1);
  }

  /** Closes those on which nothing is being answered. */
  closeUnused(): void {
    for (const [socket, count] of this.#answering) if (count === 0) socket.destroy();
  }
}
