// All layers and heads at once: a small map of each, coloured by its name, if it has one.

import { bilingual, element } from "./dom.js";
import { paint } from "./matrix.js";
import { decodeRoot } from "./payload.js";
import { headColour } from "./state.js";

const UNNAMED = "#7a8290";

export class HeadGrid {
  // `bytes`: the small maps of all layers and heads, coded; `names(layer, head)`, `title(layer, head)`.
  constructor(page, bytes) {
    const { layers, heads, thumbnail } = page.meta;
    this.cells = new Map();
    this.node = element("div", { class: "grid", role: "group" }, element("span", {}));
    this.node.style.setProperty("--heads", heads);
    for (let head = 0; head < heads; head += 1) this.node.append(element("span", { class: "grid-title" }, `H${head}`));
    layers.forEach((layer, number) => {
      this.node.append(element("span", { class: "grid-title" }, `L${layer}`));
      for (let head = 0; head < heads; head += 1) {
        const start = (number * heads + head) * thumbnail * thumbnail;
        this.node.append(this.cell(page, layer, head, decodeRoot(bytes.subarray(start, start + thumbnail * thumbnail)), thumbnail));
      }
    });
  }

  cell(page, layer, head, map, side) {
    const canvas = element("canvas", { "aria-hidden": "true" });
    const names = page.names(layer, head);
    const colour = names.length ? page.nameColour(names[0].name) : page.meta.names ? UNNAMED : headColour(head);
    paint(canvas, map, side, colour);
    const title = page.title(layer, head);
    const signs = element("span", { class: "cell-name" }, names.map((name) => page.nameSign(name.name)).join(" "));
    signs.style.setProperty("--colour", colour);
    const cell = element("button", { type: "button", class: "cell", "data-key": `cell-${layer}-${head}`, "aria-label": title, title }, canvas, signs);
    cell.addEventListener("click", () => page.change({ layer, heads: [head], view: page.pieces.length > 64 ? "text" : "lines" }));
    this.cells.set(`${layer}-${head}`, cell);
    return cell;
  }

  show(layer, heads) {
    for (const [key, cell] of this.cells) {
      const [itsLayer, itsHead] = key.split("-").map(Number);
      cell.setAttribute("aria-pressed", String(itsLayer === layer && heads.includes(itsHead)));
    }
  }
}

// What the signs in the grid mean, and how many heads have each.
export function nameLegend(page) {
  const counts = new Map();
  for (const found of Object.values(page.meta.names)) for (const { name } of found) counts.set(name, (counts.get(name) ?? 0) + 1);
  return element("p", { class: "legend" }, ...[...counts].map(([name, count]) => {
    const item = element("span", { class: "legend-item" }, element("b", {}, page.nameSign(name)), " ", bilingual(...page.nameTitle(name)), ` ${count}`);
    item.style.setProperty("--colour", page.nameColour(name));
    return item;
  }));
}
