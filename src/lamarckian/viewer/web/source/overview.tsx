/* A run at a glance: where it stands, its curves, and what can be asked of it. */
import { useEffect, useRef, useState } from "preact/hooks";
import { ChartView, clock, date, Empty, ProgressBar, short, StatusMark } from "./parts";
import type { Evaluation, Note, Overview } from "./records";

interface Props { run: string; data: Overview; connected: boolean; ask(message: object): boolean }

export function OverviewPage({ run, data, connected, ask }: Props) {
  const [mode, setMode] = useState<"x" | "t">("x");
  const main = data.groups.filter((group) => group.key !== "more");
  const more = data.groups.find((group) => group.key === "more");
  return (
    <>
      <header class="head">
        <p class="kicker">{[data.game, data.algorithm, data.seed !== null && `seed ${data.seed}`, date(data.began)].filter(Boolean).join(" · ")}</p>
        <h1>{data.name} <StatusMark status={data.status} /></h1>
        {data.reason && <p class="lead">Ended by: {data.reason}</p>}
        {data.read_share < 1 && <p class="note" role="status">Reading the journal: {Math.floor(data.read_share * 100)} %</p>}
        {data.status === "interrupted" && <p class="note">Its process is gone. Continue it with <code>lamarckian resume {data.path}</code></p>}
        {data.quiet_seconds !== null && data.quiet_seconds > 120 && <p class="note">It has written nothing for {clock(data.quiet_seconds)}.</p>}
        {data.progress && <ProgressBar progress={data.progress} />}
        <dl class="facts">
          {data.facts.map((fact) => <div key={fact.title}><dt>{fact.title}</dt><dd>{short(fact.value)}</dd></div>)}
          <div><dt>Wall clock</dt><dd>{clock(data.wall ?? 0)}</dd></div>
          {data.episodes > 0 && <div><dt>Episodes</dt><dd>{short(data.episodes)}</dd></div>}
          <div class={data.failures ? "bad" : ""}><dt>Failures</dt><dd>{data.failures}</dd></div>
        </dl>
      </header>
      <Controls run={run} data={data} connected={connected} ask={ask} />
      <section aria-labelledby="curves-title">
        <div class="bar-head">
          <h2 id="curves-title">Curves</h2>
          {main.length > 0 && (
            <div class="switch" role="group" aria-label="Horizontal axis">
              <button type="button" aria-pressed={mode === "x"} onClick={() => setMode("x")}>{data.axis}</button>
              <button type="button" aria-pressed={mode === "t"} onClick={() => setMode("t")}>wall time</button>
            </div>
          )}
        </div>
        {main.length === 0 && <Empty title="Nothing measured yet">The first curves appear when the first batch has been learned from, or the first generation selected.</Empty>}
        {main.map((group) => (
          <div key={group.key}>
            <h3 class="group">{group.title}</h3>
            {group.note && <p class="note">{group.note}</p>}
            <div class="grid-of-charts">{group.charts.map((chart) => <ChartView key={chart.name} chart={chart} axis={data.axis} mode={mode} />)}</div>
          </div>
        ))}
        {more && <More count={more.charts.length}>{() => more.charts.map((chart) => <ChartView key={chart.name} chart={chart} axis={data.axis} mode={mode} />)}</More>}
      </section>
      <div class="two">
        <section aria-labelledby="events-title">
          <h2 id="events-title">Events</h2>
          <Events notes={data.notes} damaged={data.damaged} />
        </section>
        <section aria-labelledby="evaluations-title">
          <h2 id="evaluations-title">Evaluations</h2>
          <Evaluations rows={data.evaluations} axis={data.axis} />
        </section>
      </div>
      <section>
        <details>
          <summary>Settings ({Object.keys(data.settings).length})</summary>
          <div class="scroll" tabIndex={0} role="region" aria-label="Settings">
            <table class="settings"><tbody>{Object.entries(data.settings).map(([key, value]) => <tr key={key}><th scope="row">{key}</th><td>{String(value)}</td></tr>)}</tbody></table>
          </div>
        </details>
        <p class="note command"><code>{data.path}</code></p>
      </section>
    </>
  );
}

/* Curves that few look at are drawn once somebody opens them. */
function More({ count, children }: { count: number; children: () => preact.ComponentChildren }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="more" onToggle={(event) => setOpen((event.target as HTMLDetailsElement).open)}>
      <summary>Everything else ({count})</summary>
      {open && <div class="grid-of-charts">{children()}</div>}
    </details>
  );
}

function Controls({ run, data, connected, ask }: Props) {
  const [note, setNote] = useState("");
  const [sure, setSure] = useState(false);
  const cancel = useRef<HTMLButtonElement>(null);
  useEffect(() => { if (sure) cancel.current?.focus(); }, [sure]);
  const say = (action: string, text = "") => ask({ do: "control", run, action, text });
  const alive = connected && data.is_written;
  return (
    <section class="controls" aria-label="Control">
      {data.is_written && (
        <div class="buttons">
          {data.status === "paused"
            ? <button type="button" class="strong" disabled={!alive} onClick={() => say("continue")}>Resume</button>
            : <button type="button" disabled={!alive} onClick={() => say("pause")}>Pause</button>}
          {sure
            ? <span class="sure" role="group" aria-label="Stop the run?">
                Stop the run?
                <button type="button" class="danger" onClick={() => { say("stop"); setSure(false); }}>Stop it</button>
                <button type="button" ref={cancel} onClick={() => setSure(false)}>Keep it going</button>
              </span>
            : <button type="button" disabled={!alive} onClick={() => setSure(true)}>Stop</button>}
        </div>
      )}
      <form onSubmit={(event) => { event.preventDefault(); if (note.trim() && say("note", note.trim())) setNote(""); }}>
        <label for="note">Note</label>
        <input id="note" maxLength={2000} value={note} placeholder="What did you see or try?" autocomplete="off" onInput={(event) => setNote(event.currentTarget.value)} />
        <button type="submit" disabled={!connected || !note.trim()}>Write down</button>
      </form>
    </section>
  );
}

function Events({ notes, damaged }: { notes: Note[]; damaged: number }) {
  if (!notes.length && !damaged) return <p class="quiet">Nothing out of the ordinary has happened.</p>;
  return (
    <ul class="events">
      {damaged > 0 && <li class="warning"><span class="at" /><div><span class="level">warning</span><strong>{damaged} journal lines are damaged and left out</strong></div></li>}
      {[...notes].reverse().map((note, i) => (
        <li key={notes.length - i} class={note.level}>
          <span class="at">{clock(note.wall)}</span>
          <div>
            {note.level !== "info" && <span class="level">{note.level}</span>}
            <strong>{note.title}</strong>
            {note.text && (note.text.length > 160 ? <details><summary>Details</summary><pre>{note.text}</pre></details> : <p class="quiet">{note.text}</p>)}
          </div>
        </li>
      ))}
    </ul>
  );
}

function Evaluations({ rows, axis }: { rows: Evaluation[]; axis: string }) {
  if (!rows.length) return <p class="quiet">No evaluation yet: set <code>evaluation.every</code> to take some while training.</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of evaluations">
      <table>
        <thead><tr><th scope="col">{axis}</th><th scope="col">Score</th><th scope="col">95 %</th><th scope="col">Episodes</th><th scope="col">Opponent</th></tr></thead>
        <tbody>
          {[...rows].reverse().map((row) => (
            <tr key={row.x}>
              <td>{short(row.x)}</td>
              <td>{row.value === null ? "–" : short(row.value)}</td>
              <td>{row.low === null || row.high === null ? "–" : `${short(row.low)} to ${short(row.high)}`}</td>
              <td>{row.episodes}</td>
              <td>{row.opponent}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
