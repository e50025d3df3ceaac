// Curves over common axes. Their numbers are a table of the page: a column for each curve, a row for each place on the
// horizontal axis, in the foot what to compare with. The picture is put above it, and the table is folded.

import { shownNumber } from "./charts.js";
import { element, inLanguage, replaceChildren, svgElement, themeColour } from "./dom.js";

const DASHES = [null, "7 3", "2 3", "10 3 2 3"]; // colour is not the only sign of a curve
const REFERENCE_DASH = "5 4";
const EDGE = { right: 16, top: 14, bottom: 46 }; // around the plot; on the left, what its labels need
const LETTER = 7; // pixels of a digit

export function readCurves(table) {
  const [xTitle, ...titles] = table.tHead.rows[0].cells;
  const rows = Array.from(table.tBodies[0].rows, (row) => {
    const texts = Array.from(row.cells, (cell) => cell.firstChild?.textContent ?? "");
    const values = texts.slice(1).map((text) => (text ? shownNumber(text) : null));
    return { x: shownNumber(texts[0]), values, texts, bestTitle: row.cells[0].querySelector("small") };
  });
  const series = titles.map((title, at) => {
    const points = rows.filter((row) => row.values[at] !== null);
    const hasDots = title.classList.contains("dots") || points.length === 1; // a single point makes no line
    return { title, hasDots, points: points.map((row) => [row.x, row.values[at]]), best: points.find((row) => row.bestTitle && hasDots) };
  });
  const references = Array.from(table.tFoot?.rows ?? [], (row) => ({
    title: row.cells[0],
    text: row.cells[1].textContent,
    value: row.classList.contains("diagonal") ? null : shownNumber(row.cells[1].textContent),
  }));
  const isPercent = { x: rows.some((row) => row.texts[0].includes("%")), y: rows.some((row) => row.texts.slice(1).join().includes("%")) };
  return { xTitle, rows, series, references, isPercent };
}

// ---------------------------------------------------------------------- axes

// Of an axis, never empty; `margin`: a share of it, added on both sides.
function axisRange(values, margin = 0) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const padding = (high - low) * margin || (high > low ? 0 : Math.abs(low) || 1);
  return [low - padding, high + padding];
}

// Round numbers between two.
export function axisTicks(low, high, most) {
  const smallest = (high - low) / most;
  const magnitude = 10 ** Math.floor(Math.log10(smallest));
  const step = [1, 2, 5, 10].map((factor) => magnitude * factor).find((size) => size >= smallest);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step);
}

export function tickLabel(tick, isPercent) {
  const number = Number((isPercent ? 100 * tick : tick).toPrecision(6));
  return number.toLocaleString("en-US", { maximumFractionDigits: 12 }) + (isPercent ? "%" : "");
}

function axesOf(data, width) {
  const height = Math.round(Math.min(300, Math.max(200, 0.57 * width)));
  const hasDiagonal = data.references.some(({ value }) => value === null);
  const xs = [...data.rows.map(({ x }) => x), ...(hasDiagonal ? [0, 1] : [])];
  const ys = [...data.series.flatMap(({ points }) => points.map(([, y]) => y)), ...data.references.flatMap(({ value }) => value ?? [0, 1])];
  const [xLow, xHigh] = axisRange(xs);
  const [yLow, yHigh] = axisRange(ys, hasDiagonal ? 0 : 0.05);
  const yTicks = axisTicks(yLow, yHigh, 6);
  const left = 14 + LETTER * Math.max(...yTicks.map((tick) => tickLabel(tick, data.isPercent.y).length));
  const xTicks = axisTicks(xLow, xHigh, Math.max(2, Math.min(6, Math.floor((width - left) / 60))));
  const x = (value) => left + ((value - xLow) / (xHigh - xLow)) * (width - left - EDGE.right);
  const y = (value) => height - EDGE.bottom - ((value - yLow) / (yHigh - yLow)) * (height - EDGE.top - EDGE.bottom);
  return { width, height, left, right: width - EDGE.right, bottom: height - EDGE.bottom, x, y, xTicks, yTicks };
}

// ---------------------------------------------------------------------- drawing

const pixel = (value) => value.toFixed(1);
const seriesColour = (number) => `var(--series-${number % DASHES.length})`;

function line(x1, y1, x2, y2, properties) {
  return svgElement("line", { x1: pixel(x1), y1: pixel(y1), x2: pixel(x2), y2: pixel(y2), ...properties });
}

function axisText(x, y, anchor, text, properties = {}) {
  return svgElement("text", { x: pixel(x), y: pixel(y), "text-anchor": anchor, fill: "var(--dim)", "font-size": 12, ...properties }, text);
}

function drawAxes(svg, data, axes) {
  const { left, right, bottom } = axes;
  for (const tick of axes.yTicks) {
    const y = axes.y(tick);
    svg.append(line(left, y, right, y, { stroke: "var(--line)", class: "grid-line" }));
    svg.append(axisText(left - 8, y + 4, "end", tickLabel(tick, data.isPercent.y), { class: "y-tick" }));
  }
  svg.append(line(left, bottom, right, bottom, { stroke: "var(--dim)", class: "x-axis" }));
  for (const tick of axes.xTicks) {
    svg.append(line(axes.x(tick), bottom, axes.x(tick), bottom + 4, { stroke: "var(--dim)" }));
    svg.append(axisText(axes.x(tick), bottom + 18, "middle", tickLabel(tick, data.isPercent.x), { class: "x-tick" }));
  }
  for (const title of data.xTitle.children) {
    svg.append(axisText((left + right) / 2, axes.height - 8, "middle", title.textContent, { lang: title.lang }));
  }
}

function drawSeries(svg, { points, hasDots, best }, number, axes) {
  const colour = seriesColour(number);
  const path = points.map(([x, y]) => `${pixel(axes.x(x))},${pixel(axes.y(y))}`).join(" ");
  svg.append(svgElement("polyline", { points: path, fill: "none", stroke: colour, "stroke-width": 2, "stroke-linejoin": "round", "stroke-dasharray": DASHES[number % DASHES.length] }));
  const dot = (x, y, properties) => svgElement("circle", { cx: pixel(axes.x(x)), cy: pixel(axes.y(y)), ...properties });
  if (hasDots) svg.append(...points.map(([x, y]) => dot(x, y, { r: 3.2, fill: colour, class: "dot" })));
  if (best) svg.append(dot(best.x, points.find(([x]) => x === best.x)[1], { r: 7, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, class: "best-mark" }));
}

function curvesSvg(data, axes) {
  const svg = svgElement("svg", { viewBox: `0 0 ${axes.width} ${axes.height}`, "aria-hidden": "true", "font-family": "system-ui, sans-serif" });
  drawAxes(svg, data, axes);
  for (const { value } of data.references) {
    const [from, to] = value === null ? [[0, 0], [1, 1]] : [[axes.left, value], [axes.right, value]];
    const [x1, x2] = value === null ? [axes.x(0), axes.x(1)] : [from[0], to[0]];
    svg.append(line(x1, axes.y(from[1]), x2, axes.y(to[1]), { stroke: "var(--reference)", "stroke-width": 1.5, "stroke-dasharray": REFERENCE_DASH, class: "reference-line" }));
  }
  data.series.forEach((series, number) => drawSeries(svg, series, number, axes));
  return svg;
}

function sample(colour, dash, hasDots) {
  const svg = svgElement("svg", { viewBox: "0 0 28 10", class: "sample", "aria-hidden": "true" }, line(1, 5, 27, 5, { stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dash }));
  if (hasDots) svg.append(svgElement("circle", { cx: 14, cy: 5, r: 3.5, fill: colour }));
  return svg;
}

function copied(cell) {
  return Array.from(cell.childNodes, (node) => node.cloneNode(true));
}

function keysOf(data) {
  const keys = data.series.map((series, number) => element("span", {}, sample(seriesColour(number), DASHES[number % DASHES.length], series.hasDots), ...copied(series.title)));
  keys.push(...data.references.map(({ title, text, value }) => element("span", {}, sample("var(--reference)", REFERENCE_DASH, false), ...copied(title), value === null ? "" : ` ${text}`)));
  const best = data.rows.find((row) => row.bestTitle);
  if (best) {
    const ring = svgElement("svg", { viewBox: "0 0 16 16", class: "ring", "aria-hidden": "true" }, svgElement("circle", { cx: 8, cy: 8, r: 6.5, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }));
    keys.push(element("span", {}, ring, ...copied(best.bestTitle)));
  }
  return element("div", { class: "keys" }, ...keys);
}

// ---------------------------------------------------------------------- a figure

export function drawCurves(figure) {
  const data = readCurves(figure.querySelector("table"));
  const details = figure.querySelector("details");
  const plot = element("div", { class: "plot", tabindex: 0, role: "group" });
  const reading = element("div", { class: "reading", role: "status" });
  let axes = null;
  let chosen = null; // the row that is read

  const redraw = () => {
    const width = Math.round(plot.clientWidth) || 440;
    const caption = Array.from(figure.querySelectorAll("figcaption [lang]"), (title) => title.textContent);
    plot.setAttribute("aria-label", inLanguage(`${caption[0]}: arrow keys read its values`, `${caption[1]}：方向键逐点读数`));
    if (axes?.width === width) return;
    axes = axesOf(data, width);
    replaceChildren(plot, curvesSvg(data, axes), reading);
    read(chosen);
  };
  const read = (at) => {
    chosen = at;
    plot.querySelector(".cursor")?.remove();
    reading.classList.toggle("shown", at !== null);
    if (at === null) return;
    const row = data.rows[at];
    const x = axes.x(row.x);
    const cursor = svgElement("g", { class: "cursor" }, line(x, EDGE.top, x, axes.bottom, { stroke: "var(--dim)", "stroke-dasharray": "1 3" }));
    const lines = [element("b", {}, ...copied(data.xTitle), ` ${row.texts[0]}`)];
    row.values.forEach((value, number) => {
      if (value === null) return;
      cursor.append(svgElement("circle", { cx: pixel(x), cy: pixel(axes.y(value)), r: 4.5, fill: seriesColour(number), stroke: "var(--paper)", "stroke-width": 1.5 }));
      lines.push(element("span", {}, sample(seriesColour(number), DASHES[number % DASHES.length], false), ...copied(data.series[number].title), ` ${row.texts[number + 1]}`));
    });
    plot.querySelector("svg").append(cursor);
    replaceChildren(reading, ...lines);
    reading.classList.toggle("to-the-left", x > axes.width / 2);
    reading.style.setProperty("--x", `${(100 * x) / axes.width}%`);
  };
  const nearest = (event) => {
    const box = plot.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * axes.width;
    const distances = data.rows.map((row) => Math.abs(axes.x(row.x) - x));
    return distances.indexOf(Math.min(...distances));
  };
  const onKey = (event) => {
    const last = data.rows.length - 1;
    const at = { ArrowLeft: Math.max(0, (chosen ?? last + 1) - 1), ArrowRight: Math.min(last, (chosen ?? -1) + 1), Home: 0, End: last, Escape: null }[event.key];
    if (at === undefined) return;
    event.preventDefault();
    read(at);
  };
  plot.addEventListener("pointermove", (event) => read(nearest(event)));
  plot.addEventListener("pointerdown", (event) => read(nearest(event)));
  plot.addEventListener("pointerleave", () => read(null));
  plot.addEventListener("blur", () => read(null));
  plot.addEventListener("keydown", onKey);

  const save = () => saveSvg(curvesSvg(data, axes), figure.querySelector("figcaption [lang=en]").textContent);
  details.before(plot, keysOf(data));
  details.after(element("button", { type: "button", class: "save", onclick: save }, "SVG"));
  details.open = false;
  new ResizeObserver(redraw).observe(plot);
  document.getElementById("zh")?.addEventListener("change", redraw);
  redraw();
}

// For papers: in the colours and the language that are shown.
function saveSvg(svg, title) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  svg.querySelectorAll(inLanguage("[lang=zh]", "[lang=en]")).forEach((text) => text.remove());
  svg.prepend(svgElement("title", {}, title), svgElement("rect", { width, height, fill: "var(--paper)" }));
  const text = new XMLSerializer().serializeToString(svg).replace(/var\((--[\w-]+)\)/g, (_, name) => themeColour(name));
  const link = element("a", { download: `${title.toLowerCase().replace(/\W+/g, "-")}.svg`, href: URL.createObjectURL(new Blob([text], { type: "image/svg+xml" })) });
  link.click();
  URL.revokeObjectURL(link.href);
}
