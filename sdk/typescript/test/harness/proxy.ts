/** A way to a server that breaks: after so many bytes a connection is cut, or falls silent. */
import { once } from "node:events";
import { type AddressInfo, type Socket, connect, createServer } from "node:net";

/** How a connection fares. */
export interface Fate {
  /** After how many bytes of the answer; never, if nothing is said. */
  answerBytes?: number | undefined;
  /** After how many bytes of the request; never, if nothing is said. */
  requestBytes?: number | undefined;
  /** It is cut, or nothing more comes through. */
  how?: "cut" | "silence";
}

/** A proxy that asks for each connection how it fares. */
export interface Proxy {
  url: string;
  /** How many connections there were. */
  connections: number;
  /** How many of them were broken. */
  broken: number;
  end(): Promise<void>;
}

/** Starts one. */
export async function breakingProxy(target: string, fate: (connection: number) => Fate): Promise<Proxy> {
  const { hostname, port } = new URL(target);
  const open = new Set<Socket>();
  const proxy: Proxy = { url: "", connections: 0, broken: 0, end: () => Promise.resolve() };
  const server = createServer((client) => {
    const of = fate(proxy.connections);
    proxy.connections += 1;
    const upstream = connect(Number(port), hostname);
    let isBroken = false;
    const cut = (): void => {
      if (isBroken) return;
      isBroken = true;
      proxy.broken += 1;
      if (of.how === "silence") return;
      client.destroy();
      upstream.destroy();
    };
    passOn(client, upstream, of.requestBytes, cut, () => isBroken);
    passOn(upstream, client, of.answerBytes, cut, () => isBroken);
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        open.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  proxy.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  proxy.end = async () => {
    for (const socket of open) socket.destroy();
    server.close();
    await once(server, "close");
  };
  return proxy;
}

function passOn(from: Socket, to: Socket, limit: number | undefined, cut: () => void, isBroken: () => boolean): void {
  let passed = 0;
  from.on("data", (bytes: Buffer) => {
    if (isBroken()) return;
    const room = (limit ?? Infinity) - passed;
    passed += bytes.length;
    if (bytes.length < room) {
      to.write(bytes);
    } else {
      // What is allowed comes through whole, and then no more.
      to.write(bytes.subarray(0, room), () => cut());
    }
  });
}

/** Numbers by chance, the same each time. */
export function chance(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
