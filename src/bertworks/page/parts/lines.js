// Attention as lines between two columns of tokens: a colour for each head, opacity for the weight.

import { element, isDark, svgElement } from "./dom.js";
import { headColour, lighter } from "./state.js";
import { TokenStrip, columnWidth, tokenLabel } from "./strip.js";

const ROW = 22; // pixels
const WIDTH = 320;
const MARGIN = 6;
const STROKE = 1.6;
const FAINTEST = 0.04; // opacity
const PART = 24 * ROW; // pixels: a long picture is several canvases, and only those in sight are drawn

function opacity(weight) {
  return Math.min(1, Math.max(FAINTEST, weight));
}

// A canvas for each part of the picture, empty but for those that `update` sees in the window.
class LinePicture {
  constructor(lines, heads, nRows) {
    const height = nRows * ROW;
    this.lines = lines;
    this.colours = heads.map((head) => (isDark() ? lighter(headColour(head)) : headColour(head)));
    this.node = element("div", { class: "line-picture" });
    this.parts = [];
    for (let top = 0; top < height; top += PART) {
      const part = { top, height: Math.min(PART, height - top), canvas: element("canvas", { class: "lines", width: 0, role: "img", "aria-hidden": "true" }) };
      part.canvas.style.setProperty("height", `${part.height}px`);
      this.node.append(part.canvas);
      this.parts.push(part);
    }
  }

  update() {
    const start = this.node.getBoundingClientRect().top;
    for (const part of this.parts) {
      const isInSight = start + part.top < window.innerHeight && start + part.top + part.height > 0;
      if (isInSight && !part.isDrawn) this.draw(part);
      else if (!isInSight && part.isDrawn) part.canvas.width = 0; // its memory
      part.isDrawn = isInSight;
    }
  }

  draw({ canvas, top, height }) {
    const scale = window.devicePixelRatio || 1;
    canvas.width = WIDTH * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.translate(0, -top);
    context.lineWidth = STROKE;
    for (const { map, row, column, weight } of this.lines) {
      const [from, to] = [(row + 0.5) * ROW, (column + 0.5) * ROW];
      if (Math.max(from, to) < top - STROKE || Math.min(from, to) > top + height + STROKE) continue;
      context.globalAlpha = opacity(weight);
      context.strokeStyle = this.colours[map];
      context.beginPath();
      context.moveTo(MARGIN, from);
      context.lineTo(WIDTH - MARGIN, to);
      context.stroke();
    }
  }
}

// `sums`: what the selected tokens together give to those on the other side, a background for these; null: none are.
export function linesView({ tokens, rows, columns, lines, heads, sums, state, onToken }) {
  const picture = new LinePicture(lines, heads, Math.max(rows.length, columns.length));
  const strips = [["from", rows], ["to", columns]].map(([side, shown]) => new TokenStrip(shown.length, {
    size: ROW,
    className: `line-tokens ${side}`,
    make: (place) => {
      const at = shown[place];
      const isSelected = state.tokens.includes(at) && state.direction === side;
      const button = element("button", { type: "button", class: "token-row", "data-key": `${side}-${at}`, "aria-pressed": String(isSelected) }, tokenLabel(tokens[at]));
      if (sums && state.direction !== side) {
        button.style.setProperty("--weight", sums[place].toFixed(4));
        button.title = sums[place].toFixed(3);
      }
      button.addEventListener("click", (event) => onToken(at, side, event.shiftKey || event.ctrlKey || event.metaKey));
      return button;
    },
  }));
  const node = element("div", { class: "lines-frame" }, strips[0].node, picture.node, strips[1].node);
  node.style.setProperty("--from-width", `${columnWidth(rows.map((at) => tokens[at]))}px`);
  node.style.setProperty("--to-width", `${columnWidth(columns.map((at) => tokens[at]))}px`);
  node.style.setProperty("--colour", headColour(heads[0]));
  return { node, update: () => [...strips, picture].forEach((part) => part.update()) };
}

// The same picture as SVG, for papers and for print: words are text. `AttentionView.svg` writes the same bytes.
export function linesSvg({ tokens, rows, columns, lines, heads, layer }) {
  const [left, right] = [rows, columns].map((shown) => columnWidth(shown.map((at) => tokens[at])));
  const width = left + WIDTH + right;
  const height = (Math.max(rows.length, columns.length) + 1) * ROW;
  const titles = heads.map((head) => `L${layer}H${head}`);
  const svg = svgElement("svg", {
    xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "sans-serif", "font-size": 14,
  }, svgElement("title", {}, titles.join(" ")));
  titles.forEach((title, number) => {
    svg.append(svgElement("text", { x: left + MARGIN + (number % 6) * 52, y: 16, fill: headColour(heads[number]), "font-weight": "bold" }, title));
  });
  for (const line of lines) {
    svg.append(svgElement("line", {
      x1: left + MARGIN, y1: line.row * ROW + 33, x2: left + WIDTH - MARGIN, y2: line.column * ROW + 33,
      stroke: headColour(heads[line.map]), "stroke-width": STROKE, "stroke-opacity": opacity(line.weight).toFixed(3),
    }));
  }
  rows.forEach((at, row) => svg.append(svgElement("text", { x: left - 4, y: row * ROW + 38, "text-anchor": "end" }, tokens[at].text)));
  columns.forEach((at, column) => svg.append(svgElement("text", { x: left + WIDTH + 4, y: column * ROW + 38 }, tokens[at].text)));
  return svg;
}
