import type { AshStreamEvent } from "ash-sdk";

/** All events of a stream. */
export async function collect(events: AsyncIterable<AshStreamEvent>): Promise<AshStreamEvent[]> {
  const all = [];
  for await (const event of events) all.push(event);
  return all;
}
