// Points on a plane: a colour and a shape for each group, a ring around those that are marked, a star for one that is
// special. A click or a key chooses a point; what that means is the page's matter.

import { element, replaceChildren, svgElement } from "./dom.js";
import { COLOURS } from "./state.js";

const SIZE = 560;
const MARGIN = 26;
const RING = 9.5;
// Outlines around (0, 0). Colour is not the only sign of a group.
const SHAPES = [
  "M5,0A5,5 0 1 1 -5,0A5,5 0 1 1 5,0Z",
  "M-4.5,-4.5H4.5V4.5H-4.5Z",
  "M0,-6L5.5,4.5H-5.5Z",
  "M0,-6.5L6.5,0L0,6.5L-6.5,0Z",
  "M-2,-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
  "M-6,-3.5L-3.5,-6L0,-2.5L3.5,-6L6,-3.5L2.5,0L6,3.5L3.5,6L0,2.5L-3.5,6L-6,3.5L-2.5,0Z",
];
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

export function groupColour(group) {
  return COLOURS[group % COLOURS.length];
}

function outline(group) {
  return SHAPES[group % SHAPES.length];
}

// The sign of a group, for a legend.
export function groupMark(group) {
  const path = svgElement("path", { d: outline(group) });
  path.style.setProperty("fill", groupColour(group));
  return svgElement("svg", { viewBox: "-8 -8 16 16", class: "group-mark", "aria-hidden": "true" }, path);
}

// How points are put into the picture: all of them fit, with one scale for both axes.
export function fitting(points) {
  const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = (SIZE - 2 * MARGIN) / (Math.max(right - left, bottom - top) || 1);
  return ([x, y]) => [SIZE / 2 + (x - (left + right) / 2) * scale, SIZE / 2 + (y - (top + bottom) / 2) * scale];
}

// The nearest point in a direction; those far off to the side count less.
export function neighbour(places, from, [dx, dy]) {
  let best = null;
  let least = Infinity;
  places.forEach(([x, y], at) => {
    const along = (x - places[from][0]) * dx + (y - places[from][1]) * dy;
    const aside = Math.abs((x - places[from][0]) * dy - (y - places[from][1]) * dx);
    if (at === from || along <= 0) return;
    const cost = along + 2 * aside;
    if (cost < least) [best, least] = [at, cost];
  });
  return best;
}

export class Scatter {
  // `onChoose(at or null)`; `onHover(at or null)`
  constructor(host, { onChoose, onHover }) {
    this.onChoose = onChoose;
    this.svg = svgElement("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "scatter", tabindex: "0", role: "application" });
    this.nodes = [];
    this.chosen = null;
    this.svg.addEventListener("click", (event) => this.choose(this.at(event)));
    this.svg.addEventListener("pointerover", (event) => onHover(this.at(event)));
    this.svg.addEventListener("pointerleave", () => onHover(null));
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    replaceChildren(host, this.svg);
  }

  at(event) {
    const node = event.target.closest(".point");
    return node === null ? null : Number(node.dataset.at);
  }

  // points: (x, y) each; groups: a number each; marked: whether each has a ring; star: (x, y) or null; label: of the
  // whole, for those who do not see it
  draw({ points, groups, marked, star, label, faded }) {
    this.svg.setAttribute("aria-label", label);
    const place = fitting(points);
    this.places = points.map(place);
    // A flat cloud has a flat picture; a star may lie anywhere around it.
    const reach = star ? SIZE / 2 : Math.max(SIZE / 4, MARGIN + Math.max(...this.places.map(([, y]) => Math.abs(y - SIZE / 2))));
    this.svg.setAttribute("viewBox", `0 ${SIZE / 2 - reach} ${SIZE} ${2 * reach}`);
    if (this.nodes.length !== points.length) {
      this.nodes = points.map((_, at) => svgElement("g", { class: "point", "data-at": at }, svgElement("path", {}), marked?.[at] ? svgElement("circle", { class: "ring", r: RING }) : null));
      // Marked ones are drawn last, above the others.
      replaceChildren(this.svg, ...this.nodes.filter((_, at) => !marked?.[at]), ...this.nodes.filter((_, at) => marked?.[at]));
    }
    this.nodes.forEach((node, at) => {
      const [x, y] = this.places[at];
      node.style.setProperty("transform", `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`);
      node.firstChild.setAttribute("d", outline(groups[at]));
      node.firstChild.style.setProperty("fill", groupColour(groups[at]));
      node.classList.toggle("faded", Boolean(faded?.(at)));
    });
    this.drawStar(star === null || star === undefined ? null : place(star));
    this.showChosen();
  }

  // A star that is far away is at the edge, with an arrow.
  drawStar(place) {
    this.svg.querySelector(".star")?.remove();
    if (place === null) return;
    const inside = place.map((value) => Math.min(SIZE - MARGIN / 2, Math.max(MARGIN / 2, value)));
    const isFar = inside.some((value, axis) => value !== place[axis]);
    const star = svgElement("g", { class: isFar ? "star far" : "star" });
    if (isFar) {
      const centre = [SIZE / 2, SIZE / 2];
      const length = Math.hypot(place[0] - centre[0], place[1] - centre[1]);
      const [dx, dy] = [0, 1].map((axis) => (place[axis] - centre[axis]) / length);
      const reach = (SIZE / 2 - MARGIN / 2) / Math.max(Math.abs(dx), Math.abs(dy));
      const tip = [centre[0] + dx * reach, centre[1] + dy * reach];
      const [tail, head] = [26, 8].map((back) => [tip[0] - dx * back, tip[1] - dy * back]);
      const side = [dy * 5, -dx * 5];
      star.append(
        svgElement("text", { x: tip[0] - dx * 38, y: tip[1] - dy * 38 }, "★"),
        svgElement("path", { d: `M${tail}L${head}M${tip}L${head[0] + side[0]},${head[1] + side[1]}L${head[0] - side[0]},${head[1] - side[1]}Z` }),
      );
    } else star.append(svgElement("text", { x: inside[0], y: inside[1] }, "★"));
    this.svg.append(star);
  }

  choose(at) {
    this.chosen = at;
    this.showChosen();
    this.onChoose(at);
  }

  showChosen() {
    this.nodes.forEach((node, at) => node.classList.toggle("chosen", at === this.chosen));
    if (this.chosen !== null) this.svg.append(this.nodes[this.chosen]); // above the others
  }

  onKey(event) {
    const last = this.nodes.length - 1;
    let at = null;
    if (event.key === "Escape") this.choose(null);
    else if (event.key in ARROWS) at = this.chosen === null ? 0 : neighbour(this.places, this.chosen, ARROWS[event.key]);
    else if (event.key === "Home") at = 0;
    else if (event.key === "End") at = last;
    else if (event.key === "PageDown" || event.key === "PageUp") at = Math.min(last, Math.max(0, (this.chosen ?? -1) + (event.key === "PageDown" ? 1 : -1)));
    else return;
    event.preventDefault();
    if (at !== null) this.choose(at);
  }
}

// A list of groups with their signs; a click shows one alone. `texts`: nodes or strings.
export function legend(texts, alone, onAlone) {
  return element(
    "ul",
    { class: "groups" },
    ...texts.map((text, group) =>
      element("li", {}, element("button", { type: "button", "aria-pressed": String(alone === group), onclick: () => onAlone(alone === group ? null : group) }, groupMark(group), " ", text)),
    ),
  );
}
