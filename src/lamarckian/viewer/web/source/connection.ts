/* The one WebSocket: opened again whenever it is lost, and told again what is looked at. */
import type { RunLine, Said } from "./records";

export type State = "connecting" | "open" | "lost";
export interface Look { run: string; page: string; [option: string]: unknown }

export interface Listener {
  state(state: State): void;
  runs(runs: RunLine[]): void;
  page(page: string, run: string, data: unknown): void;
  said(said: Said): void;
}

const RETRY = [500, 1000, 2000, 4000];

export class Connection {
  private socket: WebSocket | null = null;
  private tries = 0;
  private wanted: Look | null = null;

  constructor(private readonly listener: Listener) {
    this.open();
  }

  look(look: Look): void {
    this.wanted = look;
    this.send({ do: "look", ...look });
  }

  send(message: object): boolean {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  private open(): void {
    const address = new URL("live", document.baseURI);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    address.hash = "";
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.onopen = () => {
      this.tries = 0;
      this.listener.state("open");
      if (this.wanted) this.look(this.wanted);
    };
    socket.onmessage = (event) => this.hear(JSON.parse(event.data));
    socket.onclose = () => {
      this.listener.state("lost");
      setTimeout(() => this.open(), RETRY[Math.min(this.tries++, RETRY.length - 1)]);
    };
  }

  private hear(message: { type: string; [key: string]: any }): void {
    if (message.type === "runs") this.listener.runs(message.runs);
    else if (message.type === "page") this.listener.page(message.page, message.run, message.data);
    else if (message.type === "said") this.listener.said({ ok: message.ok, text: message.text });
  }
}
