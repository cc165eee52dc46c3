/** Real processes and real sockets: the sidecar in front of a service that counts what it does. */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { type IncomingMessage, type Server, createServer } from "node:http";
import { type AddressInfo, createServer as createSocket } from "node:net";

export function needs(variable: string, how: string): string {
  const value = process.env[variable];
  if (!value) throw new Error(`${variable} is not set: see \`${how}\``);
  return value;
}

export const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

export async function freePort(): Promise<number> {
  const socket = createSocket();
  await new Promise<void>((resolve) => socket.listen(0, "127.0.0.1", resolve));
  const { port } = socket.address() as AddressInfo;
  await new Promise((resolve) => socket.close(resolve));
  return port;
}

export async function listening(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 511, resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

export async function untilAnswered(url: string, child: ChildProcess): Promise<void> {
  for (let turn = 0; turn < 600; turn++) {
    if (child.exitCode !== null) throw new Error(`it ended at its start: ${url}`);
    const answered = await fetch(url).then((response) => response.status === 200, () => false);
    if (answered) return;
    await sleep(50);
  }
  throw new Error(`it never answers: ${url}`);
}

export interface Running {
  url: string;
  stop: () => Promise<void>;
}

export async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) {
    await new Promise((resolve) => child.once("exit", resolve));
  }
}

/** The real program on the real Redis, in a namespace of its own. */
export async function sidecar(upstream = "http://127.0.0.1:9", store?: string, more: string[] = []): Promise<Running> {
  const program = needs("SEMEL_TEST_PROGRAM", "cargo xtask sdks");
  const url = store ?? needs("SEMEL_TEST_REDIS_URL", "cargo xtask services up redis");
  const address = `127.0.0.1:${await freePort()}`;
  const settings = [`environment=sdk-${randomBytes(6).toString("hex")}`, "api.access=loopback", "log.level=error", ...more];
  const options = settings.flatMap((setting) => ["--set", setting]);
  const child = spawn(program, ["serve", "--upstream", upstream, "--store", url, "--listen", address, ...options], {
    stdio: "inherit",
  });
  await untilAnswered(`http://${address}/_semel/readyz`, child);
  const stop = async () => {
    child.kill("SIGKILL");
    await ended(child);
  };
  return { url: `http://${address}`, stop };
}

export interface Order {
  order: string;
  status?: number;
}

/** Charges cards, as often as it is asked to. */
export class Payments {
  readonly effects = new Map<string, number>();
  readonly receipts = new Map<string, string>();
  readonly server = createServer((request, response) => {
    void body(request).then((text) => {
      const { order, status = 201 } = JSON.parse(text) as Order;
      const receipt = randomBytes(8).toString("hex");
      this.effects.set(order, (this.effects.get(order) ?? 0) + 1);
      this.receipts.set(order, receipt);
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ order, receipt }));
    });
  });

  async start(): Promise<Running> {
    const url = await listening(this.server);
    const stop = async () => {
      this.server.closeAllConnections();
      await new Promise((resolve) => this.server.close(resolve));
    };
    return { url, stop };
  }
}

export async function body(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}
