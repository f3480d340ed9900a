/* The page as a whole: the connection, what is looked at, and where one is. */
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "../../page/report.css";
import "./viewer.css";
import { Connection, type State } from "./connection";
import { OverviewPage } from "./overview";
import { clock, Empty, short, StatusMark } from "./parts";
import type { Overview, RunLine, Said } from "./records";

interface Place { run: string; page: string }

function here(): Place {
  const [run = "", page = "overview"] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { run, page };
}

const to = (run: string, page = "overview") => `#/${encodeURIComponent(run)}/${page}`;

function App() {
  const [state, setState] = useState<State>("connecting");
  const [runs, setRuns] = useState<RunLine[] | null>(null);
  const [shown, setShown] = useState<{ run: string; page: string; data: unknown } | null>(null);
  const [said, setSaid] = useState<Said | null>(null);
  const [place, setPlace] = useState(here);
  const connection = useRef<Connection | null>(null);
  const heading = useRef<HTMLElement>(null);

  useEffect(() => {
    connection.current = new Connection({
      state: setState, runs: setRuns, said: setSaid,
      page: (page, run, data) => setShown({ page, run, data }),
    });
    const moved = () => { setPlace(here()); setSaid(null); heading.current?.focus({ preventScroll: true }); window.scrollTo(0, 0); };
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => { connection.current?.look({ run: place.run, page: place.page }); }, [place]);
  // A single run needs no choosing.
  useEffect(() => { if (!place.run && runs?.length === 1) location.replace(to(runs[0].key)); }, [runs]);
  useEffect(() => { if (said?.ok) { const timer = setTimeout(() => setSaid(null), 6000); return () => clearTimeout(timer); } }, [said]);

  const current = runs?.find((run) => run.key === place.run);
  useEffect(() => { document.title = current ? `${current.name} · Lamarckian` : "Lamarckian"; }, [current?.name]);
  const ask = (message: object) => connection.current?.send(message) ?? false;
  const data = shown && shown.run === place.run && shown.page === place.page ? shown.data : null;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); heading.current?.focus(); }}>Skip to the content</a>
      <nav class="topbar wrap" aria-label="Runs">
        <a class="brand" href="#/">Lamarckian</a>
        {current && <a href="#/">All runs ({runs!.length})</a>}
      </nav>
      <div class="wrap" role="status" aria-live="polite">
        {state === "lost" && <p class="banner">The viewer does not answer: its process has ended or the network is down. Trying again; what you see is from before.</p>}
        {said && <p class={`banner ${said.ok ? "fine" : ""}`}>{said.text} <button type="button" onClick={() => setSaid(null)}>Dismiss</button></p>}
      </div>
      <main id="main" class="wrap" tabIndex={-1} ref={heading}>
        {runs === null ? <p class="quiet">Connecting…</p>
          : !place.run ? <RunList runs={runs} />
          : !current ? <Empty title="There is no such run">It may have been removed. <a href="#/">All runs</a></Empty>
          : data === null ? <p class="quiet" aria-busy="true">Reading the journal of {current.name}…</p>
          : <OverviewPage run={place.run} data={data as Overview} connected={state === "open"} ask={ask} />}
      </main>
    </>
  );
}

function RunList({ runs }: { runs: RunLine[] }) {
  return (
    <>
      <h1>Runs</h1>
      {runs.length === 0 && <Empty title="No runs yet">Start one with <code>lamarckian train pong</code> or <code>lamarckian evolve pong</code>; it appears here by itself.</Empty>}
      <ul class="runs">
        {runs.map((run) => (
          <li key={run.key}>
            <a href={to(run.key)}>
              <span class="title"><strong>{run.key}</strong> <StatusMark status={run.status} /></span>
              <span class="quiet">{[run.game, run.algorithm, run.wall !== null && clock(run.wall)].filter(Boolean).join(" · ")}</span>
              <span class="quiet">
                {run.best && `${run.best.name.replaceAll("_", " ")} ${short(run.best.value)}`}
                {run.progress && run.status === "running" && ` · ${Math.floor(run.progress.share * 100)} %${run.progress.left !== null ? `, ${clock(run.progress.left)} left` : ""}`}
              </span>
            </a>
          </li>
        ))}
      </ul>
    </>
  );
}

render(<App />, document.getElementById("app")!);
