/* Puts curves and replays into the page. */
(async () => {
  const { el } = Charts;
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);

  const place = find("charts"), figures = [];
  for (const group of data.groups) {
    const grid = el("div", "grid-of-charts");
    grid.dataset.columns = group.charts.length % 3 === 1 || group.charts.length === 2 ? 2 : 3;
    const add = () => {
      if (grid.childElementCount) return;
      for (const chart of group.charts) {
        const figure = Charts.make(chart, data.axis);
        figure.setMode(mode);
        figures.push(figure);
        grid.append(figure);
      }
    };
    if (group.key === "more") {
      const more = el("details", "more", el("summary", "", `${group.title} (${group.charts.length})`), grid);
      more.addEventListener("toggle", add);
      place.append(more);
    } else {
      place.append(el("h3", "group", group.title));
      if (group.note) place.append(el("p", "note", group.note));
      place.append(grid);
      queueMicrotask(add);
    }
  }
  let mode = "x";
  const axis = find("axis");
  for (const [key, text] of [["x", data.axis], ["t", "wall time"]]) {
    const choice = el("button", "", text);
    choice.type = "button";
    choice.setAttribute("aria-pressed", key === mode);
    choice.addEventListener("click", () => {
      mode = key;
      for (const each of axis.children) each.setAttribute("aria-pressed", each === choice);
      for (const figure of figures) figure.setMode(key);
    });
    axis.append(choice);
  }
  axis.hidden = data.groups.length === 0;
  find("no-charts").hidden = data.groups.length > 0;

  const none = find("no-replays");
  if (!data.replays) { none.hidden = false; return; }
  try {
    Theatre.open(find("theatre"), await Columns.unpack(data.replays));
  } catch (error) {
    none.querySelector("p:last-child").textContent = `The replays cannot be shown here: ${error.message}.`;
    none.hidden = false;
  }
})();
