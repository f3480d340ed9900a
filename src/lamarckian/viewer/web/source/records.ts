/* What the server sends; the makers are in viewer/live.py. */
export interface Progress { done: number; total: number; unit: string; share: number; left: number | null }

export interface Line { label: string; x: number[]; t: number[]; y: (number | null)[] }
export interface Point { x: number; t: number; y: number; low: number | null; high: number | null }
export interface Chart {
  name: string; title: string; what: string; unit: string; bad: string;
  limit: [string, number] | null; lines: Line[]; points: Point[]; gaps: number;
}
export interface Group { key: string; title: string; note: string; charts: Chart[] }

export interface RunLine {
  key: string; name: string; status: Status; kind: string; game: string; algorithm: string;
  began: number | null; wall: number | null; progress: Progress | null;
  best: { name: string; value: number } | null; read: boolean;
}
export type Status = "running" | "paused" | "stopped" | "finished" | "interrupted";

export interface Note { wall: number; level: "info" | "note" | "warning" | "failure"; title: string; text: string }
export interface Evaluation {
  x: number; wall: number; episodes: number; opponent: string;
  metric: string | null; value: number | null; low: number | null; high: number | null;
}
export interface Overview extends Omit<RunLine, "key"> {
  axis: string; seed: number | null; version: string; path: string; command: string; reason: string;
  totals: Record<string, number>; episodes: number; is_written: boolean; read_share: number; damaged: number;
  quiet_seconds: number | null; facts: { name: string; title: string; value: number }[]; evolves: boolean;
  groups: Group[]; evaluations: Evaluation[]; notes: Note[]; failures: number;
  settings: Record<string, string | number | boolean | null>;
}

export interface Said { ok: boolean; text: string }
