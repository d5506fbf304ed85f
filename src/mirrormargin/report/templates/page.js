"use strict";
// The page around the plots: themes, verdict filters, legends, players, downloads, links.
(() => {
  const figures = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  // ---- figures -----------------------------------------------------------------------------
  const start = (figure) => {
    const section = document.getElementById(figure.id);
    figure.hidden = new Set();
    // At the end, where there is most to see; the player starts over.
    figure.frame = Math.max(0, ...figure.panels.map((panel) => (panel.heat ? panel.heat.frames.length - 1 : 0)));
    figure.plots = [...section.querySelectorAll(".plot")];
    for (const panel of figure.panels)
      for (const series of panel.series) if (!series.visible) figure.hidden.add(series.label);
    figure.panels.forEach((panel, i) => { figure.plots[i].style.height = `${plots.height(panel, figure.plots[i].clientWidth)}px`; });
    addLegend(figure, section.querySelector(".legend"));
    addPlayer(figure, section.querySelector(".player"));
    if (figure.texts) addTexts(figure.texts, section.querySelector(".texts"));
    for (const button of section.querySelectorAll("[data-format]"))
      button.addEventListener("click", () => download(figure, button.dataset.format));
  };

  const draw = (figure, theme) => figure.panels.map((panel, i) =>
    Plotly.react(figure.plots[i], plots.traces(panel, theme, figure.hidden, figure.frame),
      plots.layout(panel, theme), plots.config(`${figure.name}-${i + 1}`)));

  const addLegend = (figure, box) => {
    const entries = new Map();
    for (const panel of figure.panels)
      for (const series of panel.series) if (!entries.has(series.label)) entries.set(series.label, series);
    if (!entries.size) return;
    figure.swatches = [];
    for (const [label, series] of entries) {
      const swatch = make("i", { className: series.style.split(" ")[0] });
      figure.swatches.push([swatch, series]);
      const button = make("button", { type: "button" }, swatch, label);
      button.setAttribute("aria-pressed", String(!figure.hidden.has(label)));
      button.addEventListener("click", () => {
        const shown = figure.hidden.delete(label);
        if (!shown) figure.hidden.add(label);
        button.setAttribute("aria-pressed", String(shown));
        for (const plot of figure.plots) {
          const places = plot.data.flatMap((trace, i) => (trace.meta === label ? [i] : []));
          if (places.length) Plotly.restyle(plot, { visible: shown }, places);
        }
      });
      box.append(button);
    }
  };

  const paintLegend = (figure, theme) => {
    for (const [swatch, series] of figure.swatches || []) {
      const color = series.colors[theme.index];
      const filled = series.style === "points" || series.style === "bars";
      swatch.style[filled ? "background" : "borderColor"] = color;
    }
  };

  const addPlayer = (figure, box) => {
    const maps = figure.panels.filter((panel) => panel.heat);
    const longest = maps.reduce((most, panel) => (panel.heat.frames.length > most.length ? panel.heat.frames : most), []);
    if (longest.length < 2) return;
    const slider = make("input", { type: "range", min: 0, max: longest.length - 1, step: 1, value: figure.frame });
    slider.setAttribute("aria-label", "Frame of the map");
    const label = make("output", { textContent: longest[figure.frame] });
    const button = make("button", { type: "button", className: "quiet", textContent: "Play" });
    const show = (frame) => {
      figure.frame = frame;
      slider.value = frame;
      label.textContent = longest[frame];
      slider.setAttribute("aria-valuetext", longest[frame]);
      figure.panels.forEach((panel, i) => {
        if (!panel.heat || !figure.plots[i].data) return;
        const values = panel.heat.values;
        Plotly.restyle(figure.plots[i], { z: [values[Math.min(frame, values.length - 1)]] }, [0]);
      });
    };
    let timer = null;
    const stop = () => { clearInterval(timer); timer = null; button.textContent = "Play"; };
    slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
    button.addEventListener("click", () => {
      if (timer !== null) return stop();
      if (figure.frame === longest.length - 1) show(0);
      button.textContent = "Pause";
      const pause = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 180;
      timer = setInterval(() => {
        show(figure.frame + 1);
        if (figure.frame === longest.length - 1) stop();
      }, pause);
    });
    box.append(button, slider, label);
  };

  // ---- texts with shaded words ---------------------------------------------------------------
  const ROWS_SHOWN = 8;
  const markRight = (right) => {
    const [style, text, label] = right === 1 ? ["good", "✓", "classified rightly"]
      : right === 0 ? ["bad", "✗", "classified wrongly"]
        : ["partly", `${Math.round(100 * right)}%`, "classified rightly in a part of the trainings"];
    const mark = make("span", { className: `mark ${style}`, textContent: text, title: label });
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", right === 0 || right === 1 ? label : `${text} ${label}`);
    return mark;
  };

  const writeText = (text, column) => {
    const cell = make("td");
    cell.dataset.column = column;
    text.tokens.forEach((token, i) => {
      const word = make(i === text.marked ? "u" : "span", { className: "word", textContent: token });
      word.title = `${token}: ${text.weights[i]}`;
      word.style.setProperty("--weight", text.weights[i]);
      cell.append(word, " ");
    });
    if (text.right !== null) cell.append(markRight(text.right));
    return cell;
  };

  const addTexts = (texts, box) => {
    const heads = texts.columns.map((name) => make("th", { scope: "col", textContent: name }));
    const rows = texts.rows.map((row) => make("tr", {}, ...row.map((text, i) => writeText(text, texts.columns[i]))));
    box.append(make("h4", { textContent: texts.title }), make("table", {},
      make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
    if (rows.length <= ROWS_SHOWN) return;
    const button = make("button", { type: "button", className: "quiet" });
    const show = (all) => {
      rows.forEach((row, i) => { row.hidden = !all && i >= ROWS_SHOWN; });
      button.textContent = all ? "Show fewer" : `Show all ${rows.length}`;
      button.setAttribute("aria-expanded", String(all));
    };
    button.addEventListener("click", () => show(button.getAttribute("aria-expanded") === "false"));
    show(false);
    box.append(button);
  };

  // ---- downloads and copies ----------------------------------------------------------------
  const quote = (cell) => {
    const text = cell === null || cell === undefined ? "" : String(cell);
    return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };

  const listPoints = (panel) => {
    const rows = [];
    for (const s of panel.series)
      s.x.forEach((x, i) => rows.push([panel.title, s.label, panel.x.ticks[x] ?? x, s.y[i], s.low?.[i], s.high?.[i]]));
    const { heat } = panel;
    if (heat) heat.values.forEach((frame, f) => frame.forEach((row, i) => row.forEach((value, j) =>
      rows.push([panel.title, `${heat.frames[f]} / ${heat.rows[i]}`, heat.columns[j], value, "", ""]))));
    return rows;
  };

  const listTokens = (texts) => texts.rows.flatMap((row, number) => row.flatMap((text, i) =>
    text.tokens.map((token, t) => [texts.title, `${texts.columns[i]} / text ${number + 1}`, token, text.weights[t], "", ""])));

  const tabulate = (figure) =>
    [["panel", "series", "x", "y", "low", "high"], ...figure.panels.flatMap(listPoints),
      ...(figure.texts ? listTokens(figure.texts) : [])]
      .map((row) => row.map(quote).join(",")).join("\n") + "\n";

  const describe = (figure) => JSON.stringify({
    name: figure.name, title: figure.title, texts: figure.texts,
    panels: figure.panels.map(({ title, x, y, series, heat }) => ({
      title, x, y, series: series.map(({ colors, visible, ...rest }) => rest),
      heat: heat && { frames: heat.frames, rows: heat.rows, columns: heat.columns, marked: heat.marked, values: heat.values },
    })),
  }, null, 1);

  const download = (figure, format) => {
    const text = format === "csv" ? tabulate(figure) : describe(figure);
    const type = format === "csv" ? "text/csv" : "application/json";
    const address = URL.createObjectURL(new Blob([text], { type }));
    const link = make("a", { href: address, download: `${figure.name}.${format}` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Files opened from disk have no clipboard in some browsers: the old way works in all.
      const field = make("textarea", { value: text });
      field.style.position = "fixed";
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
  };
  for (const button of document.querySelectorAll(".copy"))
    button.addEventListener("click", async () => {
      await copy(button.parentElement.querySelector("code").textContent);
      button.textContent = "Copied";
      button.classList.add("copied");
      setTimeout(() => { button.textContent = "Copy"; button.classList.remove("copied"); }, 1500);
    });

  // ---- verdicts ----------------------------------------------------------------------------
  const chips = [...document.querySelectorAll(".chip")];
  const claims = [...document.querySelectorAll("details.claim")];
  const filter = (verdict) => {
    for (const chip of chips) chip.setAttribute("aria-pressed", String(chip.dataset.verdict === verdict));
    let count = 0;
    for (const claim of claims) {
      claim.hidden = verdict !== "" && claim.dataset.verdict !== verdict;
      if (!claim.hidden) count += 1;
    }
    for (const group of document.querySelectorAll(".paper"))
      group.hidden = !group.querySelector("details.claim:not([hidden])");
    document.getElementById("shown").textContent = verdict === "" ? "" : `${count} of ${claims.length} claims: ${verdict}`;
  };
  for (const chip of chips)
    chip.addEventListener("click", () => filter(chip.getAttribute("aria-pressed") === "true" ? "" : chip.dataset.verdict));

  // A link to a claim shows and opens it.
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !target.matches("details.claim")) return;
    if (target.hidden) filter("");
    target.open = true;
    target.scrollIntoView({ block: "start" });
  };
  addEventListener("hashchange", follow);

  // A table wider than its box says so; in a claim that is closed it has no width yet.
  const watcher = new ResizeObserver((entries) => requestAnimationFrame(() => {
    for (const { target } of entries) target.classList.toggle("cut", target.scrollWidth > target.clientWidth + 1);
  }));
  for (const box of document.querySelectorAll(".scroll")) watcher.observe(box);

  // ---- themes ------------------------------------------------------------------------------
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  // Some browsers keep nothing for files opened from disk: then the choice lasts as long as the page.
  const KEY = "mirrormargin-theme";
  const recall = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem(KEY, theme); } catch { /* for this page only */ } };
  let chosen = recall();
  const paint = (dark) => {
    root.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", dark ? "Use light colours" : "Use dark colours");
    const theme = plots.readTheme();
    for (const figure of figures) {
      if (figure.plots) paintLegend(figure, theme);
      if (figure.drawn) draw(figure, theme);
    }
  };
  button.addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    keep(chosen);
    paint(chosen === "dark");
  });
  system.addEventListener("change", () => { if (!chosen) paint(system.matches); });

  paint(chosen ? chosen === "dark" : system.matches);
  figures.forEach(start);
  follow();
  // One figure at a time, so that the page answers while it draws.
  (async () => {
    for (const figure of figures) {
      const theme = plots.readTheme();
      paintLegend(figure, theme);
      figure.drawn = true;
      await Promise.all(draw(figure, theme));
      await new Promise((done) => setTimeout(done));
    }
    root.dataset.drawn = "all";
  })();
})();
