/* Small pieces that several pages use. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Charts, type Figure } from "../../page/charts.js";
import type { Chart, Progress, Status } from "./records";

export const short = Charts.short;
export const clock = Charts.clock;

/* Each state has a sign besides its colour. */
const STATUS: Record<Status, [string, string]> = {
  running: ["●", "Running"], paused: ["❚❚", "Paused"], finished: ["✓", "Finished"],
  stopped: ["■", "Stopped"], interrupted: ["!", "Interrupted"],
};

export function StatusMark({ status }: { status: Status }) {
  const [sign, text] = STATUS[status] ?? ["?", status];
  return <span class={`status ${status}`}><span aria-hidden="true">{sign}</span> {text}</span>;
}

export function ProgressBar({ progress }: { progress: Progress }) {
  const percent = Math.floor(progress.share * 100);
  return (
    <div class="progress">
      <div class="track" role="progressbar" aria-label="Progress" aria-valuenow={percent} aria-valuemin={0} aria-valuemax={100}>
        <div class="done" style={{ width: `${percent}%` }} />
      </div>
      <span class="quiet">{percent} % of {short(progress.total)} {progress.unit}{progress.left !== null && progress.share < 1 && `, about ${clock(progress.left)} left`}</span>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children: ComponentChildren }) {
  return <div class="empty"><p><strong>{title}</strong></p><p>{children}</p></div>;
}

export function ChartView({ chart, axis, mode }: { chart: Chart; axis: string; mode: "x" | "t" }) {
  const place = useRef<HTMLDivElement>(null);
  const figure = useRef<Figure | null>(null);
  const shown = useRef<{ axis: string; mode: string }>({ axis, mode });
  useEffect(() => {
    const before = figure.current;
    if (!before || shown.current.axis !== axis || !before.update(chart)) {
      figure.current = Charts.make(chart, axis);
      if (mode !== "x") figure.current.setMode(mode);
      place.current!.replaceChildren(figure.current);
    } else if (shown.current.mode !== mode) {
      before.setMode(mode);
    }
    shown.current = { axis, mode };
  }, [chart, axis, mode]);
  return <div class="chart-place" ref={place} />;
}

export function date(seconds: number | null): string {
  return seconds === null ? "" : new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}
