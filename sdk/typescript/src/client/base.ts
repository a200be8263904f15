/** What all parts of the client have in common. */
import { type AshClientOptions, Transport } from "../http.js";

/** Holds the connection to a server. */
export class BaseClient {
  /** Sends requests. */
  protected readonly http: Transport;

  /** Talks to a server. Nothing is sent before something is asked. */
  constructor(options: AshClientOptions) {
    this.http = new Transport(options);
  }
}
