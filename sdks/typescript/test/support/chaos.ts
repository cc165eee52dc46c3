/** A proxy that does to requests what networks do: drops, delays, duplicates, truncates. From a seed. */
import { type AddressInfo, type Socket, connect, createServer } from "node:net";
import { sleep } from "./servers.js";

export const FAULTS = {
  none: 50,
  refuse: 8, // closed before anything went on
  dropRequest: 8, // read, and never passed on
  dropResponse: 12, // passed on, and the answer thrown away
  truncate: 10, // two thirds of the answer
  duplicate: 8, // passed on twice
  delay: 4, // longer than the client waits
} as const;
type Fault = keyof typeof FAULTS;

/** Random numbers from a seed (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** `keys` has every key by the body that it came with. */
export class Chaos {
  readonly faults = new Map<Fault, number>();
  readonly keys = new Map<string, Set<string>>();
  requests = 0;
  url = "";
  readonly #random: () => number;
  readonly #upstream: URL;
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((socket) => {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    void this.#connection(socket).catch(() => socket.destroy());
  });

  constructor(
    upstream: string,
    seed: number,
    private readonly delayMs: number,
  ) {
    this.#upstream = new URL(upstream);
    this.#random = seeded(seed);
  }

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", 511, resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #pick(): Fault {
    let at = this.#random() * Object.values(FAULTS).reduce((sum, weight) => sum + weight, 0);
    for (const [fault, weight] of Object.entries(FAULTS)) {
      at -= weight;
      if (at < 0) return fault as Fault;
    }
    return "none";
  }

  async #connection(socket: Socket): Promise<void> {
    const fault = this.#pick();
    this.faults.set(fault, (this.faults.get(fault) ?? 0) + 1);
    if (fault === "refuse") {
      socket.destroy();
      return;
    }
    const { head, body } = await requestOf(socket);
    this.requests += 1;
    const key = /^idempotency-key: *(.*)$/im.exec(head)?.[1];
    if (key !== undefined) this.keys.set(body.toString(), (this.keys.get(body.toString()) ?? new Set()).add(key));
    if (fault === "dropRequest") {
      socket.destroy();
      return;
    }
    // One request a connection, so that an answer ends with it.
    const lines = head.split("\r\n").filter((line) => line !== "" && !/^connection:/i.test(line));
    const sent = Buffer.concat([Buffer.from([...lines, "Connection: close", "", ""].join("\r\n")), body]);
    let answer = await this.#forward(sent);
    if (fault === "duplicate") answer = await this.#forward(sent);
    if (fault === "delay") await sleep(this.delayMs);
    if (fault === "dropResponse") socket.destroy();
    else if (fault === "truncate") socket.end(answer.subarray(0, Math.floor((answer.length * 2) / 3)));
    else socket.end(answer);
  }

  #forward(sent: Buffer): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const chunks: Buffer[] = [];
      const upstream = connect(Number(this.#upstream.port), this.#upstream.hostname, () => upstream.write(sent));
      upstream.on("data", (chunk) => chunks.push(chunk));
      upstream.on("end", () => {
        upstream.end();
        resolve(Buffer.concat(chunks));
      });
      upstream.on("error", reject);
    });
  }
}

/** One whole request. */
function requestOf(socket: Socket): Promise<{ head: string; body: Buffer }> {
  return new Promise((resolve, reject) => {
    let read = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      read = Buffer.concat([read, chunk]);
      const end = read.indexOf("\r\n\r\n");
      if (end < 0) return;
      const head = read.subarray(0, end).toString();
      const length = Number(/^content-length: *([0-9]+)/im.exec(head)?.[1] ?? 0);
      const body = read.subarray(end + 4);
      if (body.length >= length) resolve({ head, body: body.subarray(0, length) });
    });
    socket.on("close", () => reject(new Error("closed before the request was whole")));
  });
}
