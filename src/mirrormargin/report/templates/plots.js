"use strict";
// From a panel of the embedded data to Plotly's traces and layout, in the colours of the theme.
const plots = (() => {
  const DASHES = { dashed: "dash", dotted: "dot", dashdot: "dashdot" };
  const coarse = matchMedia("(pointer: coarse)").matches;

  const readTheme = () => {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    const dark = document.documentElement.dataset.theme === "dark";
    return {
      index: dark ? 1 : 0, ink: read("--ink"), soft: read("--soft"), grid: read("--grid"),
      paper: read("--paper"), line: read("--line"), mark: read("--mark"), font: read("--text"),
    };
  };

  // Plotly reads a little HTML and its own %{...} in texts: neither may come from the data.
  const plain = (text) =>
    text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "% {");

  const fade = (hex, alpha) => {
    const part = (i) => parseInt(hex.slice(i, i + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
  };

  // What has no logarithm is a gap, or ends at the data; the numbers themselves stay as they are.
  const fit = (series, panel) => {
    const logX = panel.x.scale === "log", logY = panel.y.scale === "log";
    const gaps = series.x.map((x, i) =>
      x === null || series.y[i] === null || (logX && x <= 0) || (logY && series.y[i] <= 0));
    const cut = (values) => values.map((value, i) => (gaps[i] ? null : value));
    const result = { ...series, x: cut(series.x), y: cut(series.y) };
    if (!series.low) return result;
    const low = cut(series.low), high = cut(series.high);
    const least = [...result.y, ...low].reduce((a, b) => (b !== null && b > 0 ? Math.min(a, b) : a), Infinity);
    const raise = (value) => (value !== null && logY ? Math.max(value, least) : value);
    return { ...result, low: low.map(raise), high: high.map(raise) };
  };

  const fitAll = (panel) => panel.series.map((series) => fit(series, panel));

  // The outline of a band, in pieces where there are gaps.
  const outline = (series) => {
    const x = [], y = [];
    let piece = [];
    const close = () => {
      if (piece.length > 1) {
        const back = [...piece].reverse();
        x.push(...piece.map((i) => series.x[i]), ...back.map((i) => series.x[i]), null);
        y.push(...piece.map((i) => series.high[i]), ...back.map((i) => series.low[i]), null);
      }
      piece = [];
    };
    series.x.forEach((value, i) => {
      if (value === null || series.low[i] === null || series.high[i] === null) close();
      else piece.push(i);
    });
    close();
    return { x, y };
  };

  const errors = (series, color) => ({
    type: "data", symmetric: false, color, thickness: 1.2, width: 3,
    array: series.y.map((y, i) => (y === null || series.high[i] === null ? 0 : Math.max(0, series.high[i] - y))),
    arrayminus: series.y.map((y, i) => (y === null || series.low[i] === null ? 0 : Math.max(0, y - series.low[i]))),
  });

  const hover = (panel) => {
    const x = panel.x.ticks.length ? "%{x}" : `${plain(panel.x.label)} %{x:.5~g}`;
    return `${x}<br>${plain(panel.y.label)} %{y:.4~g}`;
  };

  const drawSeries = (series, panel, theme, hidden) => {
    const color = series.colors[theme.index];
    const base = {
      name: plain(series.label), meta: series.label, visible: !hidden.has(series.label),
      x: series.x, y: series.y, hovertemplate: hover(panel), showlegend: false,
    };
    if (series.style === "bars") {
      const bar = { ...base, type: "bar", marker: { color } };
      if (series.low) bar.error_y = errors(series, theme.ink);
      return [bar];
    }
    if (series.style === "points") {
      const cloud = { ...base, type: "scatter", mode: "markers", marker: { color, size: 6 } };
      if (series.low) cloud.error_y = errors(series, color);
      return [cloud];
    }
    const line = {
      ...base, type: "scatter", mode: "lines", connectgaps: false,
      line: { color, width: series.style === "wide" ? 6 : 2, dash: DASHES[series.style] || "solid" },
    };
    if (series.style === "arrow path") {
      const last = series.y.length - 1;
      line.mode = "lines+markers";
      line.marker = {
        color, opacity: 1, symbol: "arrow", angleref: "previous", line: { width: 0 },
        size: series.y.map((_, i) => (i === last ? 13 : 0)),
      };
    }
    if (!series.low) return [line];
    const band = {
      ...base, ...outline(series), type: "scatter", mode: "lines", fill: "toself",
      fillcolor: fade(color, 0.16), line: { width: 0 }, hoverinfo: "skip", hovertemplate: null,
    };
    return [band, line];
  };

  const drawHeat = (panel, theme, frame) => {
    const { heat } = panel;
    const scale = heat.colors.map((pair, i) => [i / (heat.colors.length - 1), pair[theme.index]]);
    const [low, high] = heat.limits;
    return [{
      type: "heatmap", z: heat.values[frame], zmin: low, zmax: high, colorscale: scale,
      xgap: panel.equal ? 0 : 1.5, ygap: panel.equal ? 0 : 1.5, // patches of pictures are one piece
      showscale: heat.scale, hoverongaps: false,
      colorbar: { thickness: 10, len: 0.9, outlinewidth: 0, tickvals: [low, (low + high) / 2, high], tickformat: ".2~g", tickfont: { color: theme.soft } },
      text: heat.rows.map((row) => heat.columns.map((column) => plain(`${row}, ${column}`))),
      hovertemplate: "%{text}: %{z:.3f}<extra></extra>", showlegend: false,
    }, ...(heat.dots ? [drawDots(heat.dots, theme)] : [])];
  };

  const drawDots = (dots, theme) => {
    const cells = dots.flatMap((row, i) => row.flatMap((size, j) => (size > 0 ? [[j, i, size]] : [])));
    return {
      type: "scatter", mode: "markers", hoverinfo: "skip", showlegend: false,
      x: cells.map(([x]) => x), y: cells.map(([, y]) => y),
      marker: { color: theme.mark, opacity: 0.85, line: { width: 0 }, size: cells.map(([, , size]) => 1 + 3.5 * size) },
    };
  };

  const traces = (panel, theme, hidden, frame) =>
    panel.heat ? drawHeat(panel, theme, Math.min(frame, panel.heat.values.length - 1))
      : fitAll(panel).flatMap((series) => drawSeries(series, panel, theme, hidden));

  const nameTicks = (labels) => {
    const stride = Math.ceil(labels.length / 12);
    const shown = labels.map((_, i) => i).filter((i) => i % stride === 0);
    return { tickmode: "array", tickvals: shown, ticktext: shown.map((i) => plain(labels[i])) };
  };

  const placeTicks = (ticks) => ({
    tickmode: "array", tickvals: ticks.map(([place]) => place), ticktext: ticks.map(([, text]) => plain(text)),
  });

  // The largest of 1, 2, 5, 10, ... that is not above a length.
  const spaceEvenly = (length) => {
    const decade = 10 ** Math.floor(Math.log10(length));
    const digit = [5, 2, 1].find((one) => one * decade <= length) || 1;
    return Number((digit * decade).toPrecision(1));
  };

  // Whole decades only, and no more of them than can be read; 1, 2, 5 where there is but one.
  const spaceDecades = (values, soft) => {
    const logs = values.flat().filter((value) => value > 0).map(Math.log10);
    const low = logs.reduce((a, b) => Math.min(a, b), 400), high = logs.reduce((a, b) => Math.max(a, b), -400);
    // Plotly enlarges the numbers of such an axis by a quarter.
    if (high - low >= 1.5) return { dtick: Math.ceil((high - low) / 6), tickfont: { size: 10, color: soft } };
    const ticks = [];
    for (let decade = Math.floor(low) - 1; decade <= high + 1; decade += 1)
      for (const digit of [1, 2, 5]) ticks.push(Number(`${digit}e${decade}`));
    const [least, most] = [10 ** low, 10 ** high];
    // Between two of these an axis would have no number at all: even steps, as on a plain axis.
    if (most > least && ticks.filter((tick) => tick >= least && tick <= most).length < 2)
      return { dtick: `L${spaceEvenly((most - least) / 3)}` };
    return { tickmode: "array", tickvals: ticks, ticktext: ticks.map(String) };
  };

  const drawAxis = (axis, theme, values) => ({
    title: { text: plain(axis.label), font: { size: 13, color: theme.soft }, standoff: 8 },
    type: axis.scale, automargin: true, gridcolor: theme.grid, zeroline: false, nticks: 7,
    linecolor: theme.line, showline: true, ticks: "outside", ticklen: 4, tickcolor: theme.line,
    tickfont: { size: 12, color: theme.soft }, exponentformat: "power", minexponent: 4,
    ...(axis.scale === "log" ? spaceDecades(values, theme.soft) : {}),
    // The room of a bar on both sides: otherwise a name at the end of a line is left out.
    ...(axis.ticks.length ? { ...nameTicks(axis.ticks), range: [-0.5, axis.ticks.length - 0.5] } : {}),
    ...(axis.marks.length ? placeTicks(axis.marks.map((place) => [place, String(place)])) : {}),
    ...(axis.reversed ? { autorange: "reversed" } : {}),
  });

  const layout = (panel, theme) => {
    const shown = fitAll(panel);
    const x = drawAxis(panel.x, theme, shown.map((series) => series.x));
    const y = drawAxis(panel.y, theme, shown.flatMap((series) => [series.y, series.low || []]));
    // Many names lie slanted below their places; none is left out for want of room.
    if (panel.x.ticks.length > 5) Object.assign(x, { tickangle: -30, ticklabeloverflow: "allow" });
    const result = {
      xaxis: x, yaxis: y, autosize: true, margin: { l: 52, r: 14, t: 26, b: 44 }, barmode: "group",
      bargap: 0.25, bargroupgap: 0.06, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: theme.font, color: theme.ink, size: 13 }, hovermode: "closest", showlegend: false,
      hoverlabel: { bgcolor: theme.paper, bordercolor: theme.line, font: { color: theme.ink, family: theme.font }, namelength: -1 },
      modebar: { color: theme.soft, activecolor: theme.ink, bgcolor: "rgba(0,0,0,0)" },
      dragmode: coarse ? false : "zoom", uirevision: "kept",
    };
    if (panel.equal) y.scaleanchor = "x";
    if (panel.heat) {
      const { heat } = panel, bare = { showgrid: false, showline: false, ticks: "" };
      Object.assign(x, heat.columnTicks.length ? placeTicks(heat.columnTicks) : nameTicks(heat.columns), bare);
      Object.assign(y, heat.rowTicks.length ? placeTicks(heat.rowTicks) : nameTicks(heat.rows), bare, { autorange: "reversed" });
      if (panel.equal) Object.assign(y, { constrain: "domain" }), Object.assign(x, { constrain: "domain" });
      result.annotations = heat.notes.map(([row, column, text]) => ({
        x: column, y: row, text: plain(text), showarrow: false, font: { size: 11, color: theme.soft },
      }));
      result.shapes = panel.heat.marked.map(([i, j]) => ({
        type: "rect", x0: j - 0.47, x1: j + 0.47, y0: i - 0.47, y1: i + 0.47, line: { color: theme.mark, width: 2 },
      }));
    }
    return result;
  };

  const height = (panel, width) => {
    if (!panel.heat) return 310;
    const rows = panel.heat.rows.length, columns = panel.heat.columns.length;
    if (panel.equal) return Math.max(180, Math.min(14, (width - 130) / columns) * rows + 70);
    return Math.max(220, 28 * rows + 90);
  };

  const config = (name) => ({
    displaylogo: false, responsive: true,
    // A list of what is wanted: Plotly adds others from version to version, one of which uploads.
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg", filename: name },
  });

  return { config, height, layout, readTheme, traces };
})();
