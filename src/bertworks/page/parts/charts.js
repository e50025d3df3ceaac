// Bars, for distances and terms of scores.

import { element } from "./dom.js";

// rows: {label, parts: [{value, class, title}], note}; all to one scale. Values may be negative.
export function barRows(rows, largest) {
  const list = element("div", { class: "bar-rows", role: "table" });
  for (const row of rows) {
    const track = element("span", { class: "bar-track" });
    for (const part of row.parts) {
      const bar = element("span", { class: `bar ${part.class}${part.value < 0 ? " negative" : ""}`, title: part.title });
      bar.style.setProperty("--share", String(Math.min(1, Math.abs(part.value) / (largest || 1))));
      track.append(bar);
    }
    list.append(
      element("div", { class: "bar-row", role: "row" }, element("span", { class: "bar-label", role: "cell" }, row.label), track, element("span", { class: "bar-note", role: "cell" }, row.note)),
    );
  }
  return list;
}

export function percent(value) {
  return `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}%`;
}
