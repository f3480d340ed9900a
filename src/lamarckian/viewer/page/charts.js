/* Line charts as SVG: axes, a read-out, and the x axis in frames or in wall time. */
const Charts = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const LEFT = 46, RIGHT = 12, TOP = 12, BOTTOM = 26;

  const svg = (name, attributes = {}, ...children) => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const el = (name, className = "", ...children) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    node.append(...children);
    return node;
  };

  function short(value) {
    const size = Math.abs(value);
    if (size >= 1e9) return trim(value / 1e9) + "G";
    if (size >= 1e6) return trim(value / 1e6) + "M";
    if (size >= 1e4) return trim(value / 1e3) + "k";
    if (size !== 0 && size < 1e-3) return value.toExponential(1);
    return trim(value);
  }
  const trim = (value) => String(Number(value.toPrecision(3)));

  function clock(seconds) {
    const whole = Math.round(seconds);
    if (whole < 60) return trim(seconds) + " s";
    const minutes = Math.floor(whole / 60);
    if (minutes < 60) return minutes + ":" + String(whole % 60).padStart(2, "0") + " min";
    return Math.floor(minutes / 60) + ":" + String(minutes % 60).padStart(2, "0") + " h";
  }

  const STEPS = [1, 2, 5, 10], CLOCK_STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600,
    7200, 14400, 21600, 43200, 86400];
  function ticks(low, high, most, time) {
    if (!(high > low)) return [low];
    const rough = (high - low) / most;
    let step = time && rough > 1 ? CLOCK_STEPS.find((each) => each >= rough) : undefined;
    if (step === undefined) {
      const power = 10 ** Math.floor(Math.log10(rough));
      step = STEPS.find((factor) => factor * power >= rough * 0.999) * power;
    }
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; i++) found.push(i * step);
    return found;
  }

  /* The range shown: all values with some air, but never below zero for what is never negative. */
  function range(values) {
    const sorted = values.slice().sort((a, b) => a - b);
    let low = sorted[0], high = sorted[sorted.length - 1];
    if (low === high) { const pad = Math.abs(low) * 0.1 || 0.5; return [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad]; }
    const pad = (high - low) * 0.06;
    const floor = low >= 0 && low - pad < 0 ? 0 : low - pad;
    return [floor, high + pad];
  }

  function nearest(sorted, target) {
    let low = 0, high = sorted.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < target) low = middle; else high = middle;
    }
    return target - sorted[low] <= sorted[high] - target ? low : high;
  }

  function make(data, axisName) {
    const figure = el("figure", "chart");
    const title = el("figcaption", "", el("h4", "", data.title));
    const now = el("output", "now");
    now.setAttribute("aria-live", "off");
    title.append(now);
    let W = 400, H = 200;
    const plot = svg("svg", { tabindex: "0", role: "img" });
    const about = el("p", "about");
    about.append([data.what, data.unit && `unit: ${data.unit}`].filter(Boolean).join("; ") || "not in the metrics catalogue");
    if (data.bad) about.append(". ", el("span", "bad", `Bad when: ${data.bad}`));
    figure.append(title, plot, about);
    if (data.lines.length > 1 || (data.points.length && data.lines.length)) figure.insertBefore(legend(data), plot);
    if (data.gaps) about.append(`. ${data.gaps} value${data.gaps > 1 ? "s were" : " was"} not finite or missing: the line has gaps there.`);
    let mode = "x", at = -1, geometry = null;

    let last = [];
    function describe() {
      last = [...data.lines.map((line) => line.y.findLast?.((v) => v !== null) ?? line.y.filter((v) => v !== null).pop()),
        ...data.points.slice(-1).map((point) => point.y)].filter((value) => value !== undefined);
      plot.setAttribute("aria-label", `${data.title}: ${last.map(short).join(", ")} at the end`);
      const isBad = data.limit && data.lines.some((line) => {
        const tail = line.y.filter((v) => v !== null).slice(-5);
        return tail.length && tail.every((v) => (data.limit[0] === ">" ? v > data.limit[1] : v < data.limit[1]));
      });
      figure.classList.toggle("alarm", Boolean(isBad));
      const bad = about.querySelector(".bad");
      if (bad) bad.textContent = `Bad when: ${data.bad}${isBad ? " (as it is at the end of this run)" : ""}`;
    }
    describe();

    function draw() {
      plot.replaceChildren();
      W = Math.max(200, plot.clientWidth || W);
      H = W > 420 ? 230 : 190;
      plot.setAttribute("viewBox", `0 0 ${W} ${H}`);
      const xs = [...data.lines.flatMap((line) => line[mode]), ...data.points.map((point) => point[mode])];
      const ys = [...data.lines.flatMap((line) => line.y), ...data.points.flatMap((p) => [p.y, p.low, p.high])]
        .filter((value) => value !== null && value !== undefined);
      const x0 = Math.min(0, ...minmax(xs)), x1 = Math.max(minmax(xs)[1], x0 + 1e-9);
      const [y0, y1] = range(ys);
      const px = (x) => LEFT + ((x - x0) / (x1 - x0)) * (W - LEFT - RIGHT);
      const py = (y) => H - BOTTOM - ((y - y0) / (y1 - y0)) * (H - TOP - BOTTOM);
      geometry = { px, py, x0, x1 };
      for (const y of ticks(y0, y1, 5)) {
        plot.append(svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: py(y), y2: py(y) }),
          svg("text", { x: LEFT - 8, y: py(y) + 4, "text-anchor": "end" }, short(y)));
      }
      const marks = ticks(x0, x1, W > 420 ? 6 : 4, mode === "t");
      marks.forEach((x, i) => {
        const anchor = px(x) > W - 40 ? "end" : i === 0 ? "start" : "middle";
        plot.append(svg("text", { x: anchor === "end" ? W - RIGHT + 8 : px(x), y: H - 8, "text-anchor": anchor }, mode === "t" ? clock(x) : short(x)));
      });
      if (data.limit && data.limit[1] > y0 && data.limit[1] < y1) {
        plot.append(svg("line", { class: "limit", x1: LEFT, x2: W - RIGHT, y1: py(data.limit[1]), y2: py(data.limit[1]) }));
      }
      data.lines.forEach((line, i) => plot.append(svg("path", { class: `line s${i % 6}`, d: path(line, px, py) })));
      for (const point of data.points) {
        if (point.low !== null && point.high !== null) plot.append(svg("line", { class: "interval", x1: px(point[mode]), x2: px(point[mode]), y1: py(point.low), y2: py(point.high) }));
        plot.append(svg("circle", { class: "point", cx: px(point[mode]), cy: py(point.y), r: 3.5 }));
      }
      plot.append(svg("g", { class: "cursor" }));
      read(-1);
    }

    function path(line, px, py) {
      let d = "", pen = "M";
      const alone = line.y.filter((v) => v !== null).length === 1;
      line.y.forEach((y, i) => {
        if (y === null) { pen = "M"; return; }
        d += pen + px(line[mode][i]).toFixed(1) + "," + py(y).toFixed(1);
        if (alone) d += "h0.01";
        pen = "L";
      });
      return d;
    }

    function read(index) {
      const main = data.lines[0] || { x: data.points.map((p) => p.x), t: data.points.map((p) => p.t), y: data.points.map((p) => p.y) };
      const cursor = plot.querySelector(".cursor");
      cursor.replaceChildren();
      at = index;
      if (index < 0) { now.textContent = last.length ? last.map(short).join(" · ") : ""; now.classList.remove("reading"); return; }
      at = Math.min(index, main.x.length - 1);
      const place = main[mode][at];
      const { px, py } = geometry;
      cursor.append(svg("line", { class: "hair", x1: px(place), x2: px(place), y1: TOP, y2: H - BOTTOM }));
      const texts = [];
      data.lines.forEach((line, i) => {
        const j = nearest(line[mode], place), y = line.y[j];
        if (y === null || y === undefined) { texts.push("no number"); return; }
        cursor.append(svg("circle", { class: `dot s${i % 6}`, cx: px(line[mode][j]), cy: py(y), r: 4 }));
        texts.push((data.lines.length > 1 && line.label ? line.label + " " : "") + short(y));
      });
      if (data.points.length) {
        const p = data.points[nearest(data.points.map((each) => each[mode]), place)];
        if (!data.lines.length || Math.abs(px(p[mode]) - px(place)) < 12) {
          texts.push((data.lines.length ? "evaluation " : "") + short(p.y) + (p.low !== null ? ` (${short(p.low)} to ${short(p.high)})` : ""));
        }
      }
      now.textContent = `${texts.join(" · ")} at ${mode === "t" ? clock(place) : short(place) + " " + axisName}`;
      now.classList.add("reading");
    }

    const length = () => (data.lines[0] || data.points).x?.length ?? data.points.length;
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const share = ((event.clientX - box.left) / box.width * W - LEFT) / (W - LEFT - RIGHT);
      const value = geometry.x0 + share * (geometry.x1 - geometry.x0);
      const main = data.lines[0] ? data.lines[0][mode] : data.points.map((p) => p[mode]);
      read(nearest(main, value));
    });
    plot.addEventListener("pointerleave", () => read(-1));
    plot.addEventListener("blur", () => read(-1));
    plot.addEventListener("keydown", (event) => {
      const jump = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
      if (jump === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      const from = at < 0 ? (jump < 0 ? length() : -1) : at;
      read(Math.max(0, Math.min(length() - 1, from + jump)));
      now.setAttribute("aria-live", "polite");
    });
    draw();
    if (typeof ResizeObserver !== "undefined") new ResizeObserver(() => requestAnimationFrame(() => { if (plot.clientWidth && plot.clientWidth !== W) draw(); })).observe(plot);
    figure.setMode = (next) => { mode = next; draw(); };
    /* Shows newer data in place; false if they need another legend, so that the chart must be made anew. */
    figure.update = (next) => {
      if (next.lines.length !== data.lines.length || (next.points.length > 0) !== (data.points.length > 0) || next.gaps !== data.gaps) return false;
      const reading = at;
      data = next;
      describe();
      draw();
      if (reading >= 0) read(reading);
      return true;
    };
    return figure;
  }

  function minmax(values) {
    let low = Infinity, high = -Infinity;
    for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
    return [low, high];
  }

  function legend(data) {
    const list = el("ul", "legend");
    data.lines.forEach((line, i) => list.append(el("li", "", el("i", `key s${i % 6}`), line.label || "training")));
    if (data.points.length) list.append(el("li", "", el("i", "key point"), "evaluation, 95 %"));
    return list;
  }

  return { make, short, clock, el };
})();
