// Numbers as pictures: bars beside them, cells shaded by them. A table keeps its numbers, for readers without a script.

import { element } from "./dom.js";

// A number as tables show it: 1,234 or 0.5 or 82.3%.
export function shownNumber(text) {
  const number = parseFloat(text.replaceAll(",", ""));
  return text.includes("%") ? number / 100 : number;
}

export function percent(value) {
  return `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}%`;
}

// parts: [{value, class, title}], one bar each, which may be negative; interval: [low, high]; reference: a line across.
export function barTrack(parts, largest, { interval = null, reference = null } = {}) {
  const placed = (name, places) => {
    const node = element("span", { class: name });
    for (const [property, value] of Object.entries(places)) {
      node.style.setProperty(property, String(Math.min(1, Math.abs(value) / (largest || 1))));
    }
    return node;
  };
  const track = element("span", { class: "bar-track" });
  for (const part of parts) {
    const bar = placed(`bar ${part.class}${part.value < 0 ? " negative" : ""}`, { "--share": part.value });
    bar.title = part.title;
    track.append(bar);
  }
  if (reference !== null) track.append(placed("bar-reference", { "--at": reference }));
  if (interval !== null) track.append(placed("bar-interval", { "--low": interval[0], "--high": interval[1] }));
  return track;
}

// rows: {label, parts, note}; all to one scale.
export function barRows(rows, largest) {
  const list = element("div", { class: "bar-rows", role: "table" });
  for (const row of rows) {
    list.append(
      element("div", { class: "bar-row", role: "row" }, element("span", { class: "bar-label", role: "cell" }, row.label), barTrack(row.parts, largest), element("span", { class: "bar-note", role: "cell" }, row.note)),
    );
  }
  return list;
}

// A table of shares and their intervals gets a bar in each row. The row in its foot is a line across all of them.
export function drawBars(table) {
  const texts = (row) => Array.from(row.cells, (cell) => cell.textContent);
  const reference = table.tFoot ? shownNumber(texts(table.tFoot.rows[0])[1]) : null;
  for (const row of table.rows) {
    if (row.parentNode === table.tHead) {
      row.cells[0].after(element("th"));
      continue;
    }
    const [, share, interval] = texts(row);
    const isReference = row.parentNode === table.tFoot;
    const parts = isReference ? [] : [{ value: shownNumber(share), class: "plain", title: share }];
    const bounds = isReference ? null : interval.split(" – ").map(shownNumber);
    row.cells[0].after(element("td", { class: "bar-cell" }, barTrack(parts, 1, { interval: bounds, reference })));
  }
}

// Cells are the darker, the larger: counts by their share of the row, others by themselves.
export function shadeCells(table) {
  for (const row of table.rows) {
    const cells = Array.from(row.cells).filter((cell) => cell.tagName === "TD" && /^-?[\d.,]+$/.test(cell.textContent) && cell.cellIndex > 0);
    const numbers = cells.map((cell) => shownNumber(cell.textContent));
    const whole = table.dataset.shade === "row" ? numbers.reduce((sum, number) => sum + number, 0) || 1 : 1;
    cells.forEach((cell, at) => cell.style.setProperty("--share", String(Math.max(0, numbers[at] / whole))));
  }
}
