/** A proxy of a store's connections that cuts them in the middle of what they carry. From a seed. */
import { type AddressInfo, type Socket, connect, createServer } from "node:net";
import { seeded } from "./chaos.js";

export class Cuts {
  /** Whether it cuts, or passes everything. */
  cutting = false;
  /** How many connections it has cut. */
  cut = 0;
  port = 0;
  readonly #random: () => number;
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((socket) => this.#connection(socket));

  constructor(
    private readonly host: string,
    private readonly upstream: number,
    seed: number,
  ) {
    this.#random = seeded(seed);
  }

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", 511, resolve));
    this.port = (this.#server.address() as AddressInfo).port;
    return this;
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Requests and replies alike: what was asked may have been done, or not have arrived. */
  #connection(near: Socket): void {
    const far = connect(this.upstream, this.host);
    const both = [near, far];
    const end = () => both.forEach((socket) => socket.destroy());
    for (const [from, to] of [both, [far, near]] as [Socket, Socket][]) {
      this.#sockets.add(from);
      from.on("error", end);
      from.on("close", () => {
        this.#sockets.delete(from);
        end();
      });
      from.on("data", (chunk) => {
        if (!this.cutting || this.#random() > 0.02) {
          to.write(chunk);
          return;
        }
        this.cut += 1;
        to.write(chunk.subarray(0, Math.floor(chunk.length * this.#random())));
        end();
      });
    }
  }
}
