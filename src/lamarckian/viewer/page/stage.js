/* Replays: one canvas for each, one set of controls for all. */
const Theatre = (() => {
  const { el } = Charts;
  const NIGHT = "#101418", INK = "#d8dee9", DIM = "#4c566a";
  const DISCS = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#d55e00"];
  const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];

  const isNumber = (value) => typeof value === "number";
  const isRow = (value) => value instanceof Uint8Array || (Array.isArray(value) && value.length > 0 && value.every(isNumber));
  const isTable = (value) => Array.isArray(value) && value.length > 1 && value.every((row) => isRow(row) && row.length === value[0].length);

  /* ---- what a game looks like: hints of the game, a picture, a board, or its numbers ---- */

  function chooseDrawer(item) {
    const first = item.frames[0] ?? {};
    if (item.drawing && Array.isArray(item.drawing.items) && item.drawing.width > 0 && item.drawing.height > 0) return scene(item.drawing);
    for (const [name, value] of Object.entries(first)) {
      const planes = Array.isArray(value) && isTable(value[0]) ? value[0] : value;
      if (isTable(planes) && planes.length * planes[0].length >= 256) return picture(name, planes.length, planes[0].length);
    }
    for (const [name, value] of Object.entries(first)) {
      if (isTable(value) && value.length > 2 && value[0].length > 2 && value.flat().every(Number.isInteger)) return board(name, value.length, value[0].length);
    }
    return numbers();
  }

  function scene(hints) {
    return {
      ratio: hints.height / hints.width,
      draw(g, width, height, frame) {
        g.fillStyle = hints.background || NIGHT;
        g.fillRect(0, 0, width, height);
        g.save();
        g.scale(width / hints.width, height / hints.height);
        for (const item of hints.items) (SHAPES[item.shape] || (() => {}))(g, item, frame[item.field], hints);
        g.restore();
      },
    };
  }

  const SHAPES = {
    rect(g, item, points) {
      g.fillStyle = item.color;
      for (const [x, y] of points || []) g.fillRect(x, y, item.width, item.height);
    },
    circle(g, item, points) {
      g.fillStyle = item.color;
      for (const [x, y, strength] of points || []) {
        g.globalAlpha = strength === undefined ? 1 : Math.max(0.15, Math.min(1, strength));
        g.beginPath();
        g.arc(x, y, item.radius, 0, 2 * Math.PI);
        g.fill();
      }
      g.globalAlpha = 1;
    },
    line(g, item, lines) {
      g.strokeStyle = item.color;
      g.lineWidth = item.width;
      g.lineCap = "round";
      for (const [x1, y1, x2, y2] of lines || []) {
        g.beginPath();
        g.moveTo(x1, y1);
        g.lineTo(x2, y2);
        g.stroke();
      }
    },
    text(g, item, value, hints) {
      if (value === undefined || value === null) return;
      g.fillStyle = item.color || INK;
      g.font = `600 ${item.size}px system-ui, sans-serif`;
      g.textBaseline = "middle";
      g.textAlign = Math.abs(item.x - hints.width / 2) < 1e-6 ? "center" : item.x > hints.width / 2 ? "right" : "left";
      g.fillText(isNumber(value) ? Charts.short(value) : String(value), item.x, item.y);
    },
  };

  function picture(name, rows, columns) {
    const small = document.createElement("canvas");
    small.width = columns;
    small.height = rows;
    const pen = small.getContext("2d");
    const pixels = pen.createImageData(columns, rows);
    return {
      ratio: rows / columns,
      draw(g, width, height, frame) {
        const value = frame[name];
        const plane = isTable(value) ? value : value[value.length - 1];
        const largest = plane.some((row) => row.some((each) => each > 1)) ? 1 : 255;
        for (let y = 0, at = 0; y < rows; y++) {
          for (let x = 0; x < columns; x++, at += 4) {
            pixels.data[at] = pixels.data[at + 1] = pixels.data[at + 2] = plane[y][x] * largest;
            pixels.data[at + 3] = 255;
          }
        }
        pen.putImageData(pixels, 0, 0);
        g.imageSmoothingEnabled = false;
        g.drawImage(small, 0, 0, width, height);
      },
    };
  }

  function board(name, rows, columns) {
    return {
      ratio: rows / columns,
      draw(g, width, height, frame) {
        g.fillStyle = NIGHT;
        g.fillRect(0, 0, width, height);
        const cell = Math.min(width / columns, height / rows);
        const kinds = [...new Set(frame[name].flat())].filter((kind) => kind !== 0).sort((a, b) => b - a);
        frame[name].forEach((row, y) => row.forEach((kind, x) => {
          g.beginPath();
          g.arc((x + 0.5) * cell, (y + 0.5) * cell, cell * 0.4, 0, 2 * Math.PI);
          const disc = kind === 0 ? null : DISCS[(kind > 0 ? kind - 1 : kinds.length - kind - 1) % DISCS.length];
          g.fillStyle = disc || "#1b2127";
          g.fill();
          if (disc && (kind < 0 || kind === 2)) { g.lineWidth = cell * 0.06; g.strokeStyle = NIGHT; g.beginPath(); g.arc((x + 0.5) * cell, (y + 0.5) * cell, cell * 0.24, 0, 2 * Math.PI); g.stroke(); }
        }));
      },
    };
  }

  /* Frames of an unknown game: every number by its name, and a bar for where it is in its range. */
  function numbers() {
    const shown = (value) => (isNumber(value) ? Charts.short(value) : JSON.stringify(value) ?? "");
    const leaves = (value, name) => {
      if (value === null || typeof value !== "object") return [[name, value]];
      const inner = Array.isArray(value) ? value.map((each, i) => [`${name}[${i}]`, each]) : Object.entries(value);
      return inner.flatMap(([key, each]) => leaves(each, key));
    };
    return {
      ratio: 0.75,
      draw(g, width, height, frame) {
        g.fillStyle = NIGHT;
        g.fillRect(0, 0, width, height);
        const entries = Object.entries(frame).filter(([key]) => key !== "kind").flatMap(([key, each]) => leaves(each, key)).slice(0, 14);
        const line = Math.min(30, height / (entries.length + 1));
        g.font = `${Math.round(line * 0.5)}px ui-monospace, monospace`;
        g.textBaseline = "middle";
        entries.forEach(([name, value], i) => {
          const y = (i + 1) * line;
          g.textAlign = "left";
          g.fillStyle = "#9aa5b1";
          g.fillText(name.slice(0, 22), width * 0.05, y, width * 0.4);
          g.fillStyle = INK;
          g.textAlign = "right";
          g.fillText(shown(value).slice(0, 40), width * 0.95, y, width * 0.5);
          g.fillStyle = DIM;
          g.fillRect(width * 0.05, y + line * 0.42, width * 0.9, 1);
        });
      },
    };
  }

  /* ---- one stage ---- */

  function scoreOf(frame) {
    const score = frame.score ?? frame.points;
    if (Array.isArray(score)) return score.join(" : ");
    if (score && typeof score === "object") return Object.entries(score).map(([who, n]) => `${who} ${n}`).join(" · ");
    return score === undefined || score === null ? "" : isNumber(score) ? Charts.short(score) : String(score);
  }

  function makeStage(item) {
    const drawer = chooseDrawer(item);
    const canvas = el("canvas");
    canvas.setAttribute("role", "img");
    canvas.style.aspectRatio = `${1 / drawer.ratio}`;
    const score = el("span", "score"), ended = el("span", "ended", "ended");
    const facts = el("p", "about", ...factsOf(item));
    const figure = el("figure", "stage", el("figcaption", "", el("h3", "", item.title), score), el("div", "frame", canvas, ended), facts);
    canvas.setAttribute("aria-label", `Replay of ${item.game}: ${item.title}`);
    let tick = 0, broken = false;
    function draw() {
      if (broken || !canvas.clientWidth) return;
      const density = Math.min(2, window.devicePixelRatio || 1);
      const width = Math.round(canvas.clientWidth * density), height = Math.round(width * drawer.ratio);
      if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
      const frame = item.frames[Math.min(tick, item.count - 1)];
      try {
        drawer.draw(canvas.getContext("2d"), width, height, frame);
      } catch {
        broken = true;
        facts.append(" This replay's frames cannot be drawn.");
      }
      score.textContent = scoreOf(frame);
      ended.hidden = tick < item.count - 1;
    }
    if (typeof ResizeObserver !== "undefined") new ResizeObserver(() => requestAnimationFrame(draw)).observe(canvas);
    return { figure, item, show(next) { tick = next; draw(); } };
  }

  function factsOf(item) {
    const words = Object.entries(item.info || {})
      .filter(([, value]) => value !== null && typeof value !== "object" && value !== "")
      .map(([name, value]) => `${name.replaceAll("_", " ")} ${isNumber(value) ? (Number.isInteger(value) ? value.toLocaleString("en") : Charts.short(value)) : value}`);
    if (item.stride > 1) words.push(`every ${item.stride}th tick is shown`);
    if (item.cut > 0) words.push("the match went on after this");
    return [words.join(" · ")];
  }

  /* ---- the controls ---- */

  function open(place, items) {
    const stages = items.map(makeStage);
    const last = stages.length - 1;
    const shown = stages.map((_, i) => i === 0 || i === last);
    const floor = el("div", "stages");
    const range = el("input");
    Object.assign(range, { type: "range", min: 0, step: 1, value: 0 });
    range.setAttribute("aria-label", "Tick");
    const button = (label, text, act) => {
      const node = el("button", "", text);
      node.type = "button";
      node.title = label;
      node.setAttribute("aria-label", label);
      node.addEventListener("click", act);
      return node;
    };
    let tick = 0, playing = false, clockBefore = 0, owed = 0;
    const longest = () => Math.max(...stages.map((stage, i) => (shown[i] ? stage.item.count : 1)));
    const rate = Math.max(...items.map((item) => (item.info?.ticks_per_second || (item.count < 90 ? 3 : 30)) / item.stride));

    const play = button("Play or pause (space)", "Play", () => setPlaying(!playing));
    play.classList.add("play");
    const back = button("One tick back (left arrow)", "‹", () => step(-1));
    const forth = button("One tick forward (right arrow)", "›", () => step(1));
    const read = el("span", "tick");
    const speed = el("select");
    speed.setAttribute("aria-label", "Speed");
    for (const each of SPEEDS) {
      const option = el("option", "", `${each}×`);
      option.value = each;
      option.selected = each === 1;
      speed.append(option);
    }
    const transport = el("div", "transport", play, back, forth, range, read, speed);
    const hint = el("p", "note keys", "Space plays and pauses, the arrow keys step.");

    if (stages.length > 2) {
      const cast = el("div", "switch cast");
      cast.setAttribute("role", "group");
      cast.setAttribute("aria-label", "Replays shown");
      stages.forEach((stage, i) => {
        const toggle = button(`Show ${stage.item.title}`, stage.item.title, () => {
          if (shown[i] && shown.filter(Boolean).length === 1) return;
          shown[i] = !shown[i];
          toggle.setAttribute("aria-pressed", shown[i]);
          arrange();
        });
        toggle.setAttribute("aria-pressed", shown[i]);
        cast.append(toggle);
      });
      place.append(cast);
    }
    place.append(floor, transport, hint);

    function arrange() {
      floor.replaceChildren(...stages.filter((_, i) => shown[i]).map((stage) => stage.figure));
      floor.dataset.count = shown.filter(Boolean).length;
      range.max = longest() - 1;
      go(Math.min(tick, longest() - 1));
    }
    function go(next) {
      tick = Math.max(0, Math.min(longest() - 1, next));
      range.value = tick;
      read.textContent = `${tick + 1} / ${longest()}`;
      range.setAttribute("aria-valuetext", `tick ${tick + 1} of ${longest()}`);
      stages.forEach((stage, i) => { if (shown[i]) stage.show(tick); });
    }
    function step(by) { setPlaying(false); go(tick + by); }
    function setPlaying(next) {
      if (next && tick >= longest() - 1) go(0);
      if (next && !playing) { clockBefore = 0; requestAnimationFrame(advance); }
      playing = next;
      play.textContent = playing ? "Pause" : "Play";
      play.setAttribute("aria-pressed", playing);
    }
    function advance(now) {
      if (!playing) return;
      if (clockBefore) owed += Math.min(0.25, (now - clockBefore) / 1000) * rate * Number(speed.value);
      clockBefore = now;
      const whole = Math.floor(owed);
      owed -= whole;
      if (whole) go(tick + whole);
      if (tick >= longest() - 1) setPlaying(false);
      else requestAnimationFrame(advance);
    }
    range.addEventListener("input", () => { setPlaying(false); go(Number(range.value)); });
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const on = event.target;
      if (on.closest?.("select, textarea, summary, svg, .scroll")) return;
      if (event.key === " ") {
        if (on.closest?.("button, a")) return;
        event.preventDefault();
        setPlaying(!playing);
      } else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && on !== range) {
        event.preventDefault();
        step((event.key === "ArrowRight" ? 1 : -1) * (event.shiftKey ? 10 : 1));
      }
    });
    arrange();
    if (!window.matchMedia?.("(prefers-reduced-motion: reduce)").matches) setPlaying(true);
  }

  return { open, makeStage };
})();
