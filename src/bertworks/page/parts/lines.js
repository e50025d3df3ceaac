// Attention as lines between two columns of tokens: a colour for each head, opacity for the weight.

import { element, isDark, svgElement } from "./dom.js";
import { headColour, lighter } from "./state.js";
import { TokenStrip, columnWidth, tokenLabel } from "./strip.js";

const ROW = 22; // pixels
const WIDTH = 320;
const MARGIN = 6;
const STROKE = 1.6;
const FAINTEST = 0.04; // opacity

function opacity(weight) {
  return Math.min(1, Math.max(FAINTEST, weight));
}

function drawLines(canvas, lines, heads, nRows) {
  const scale = Math.min(window.devicePixelRatio || 1, 16000 / (nRows * ROW));
  canvas.width = WIDTH * scale;
  canvas.height = nRows * ROW * scale;
  canvas.style.setProperty("width", `${WIDTH}px`);
  canvas.style.setProperty("height", `${nRows * ROW}px`);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.lineWidth = STROKE;
  const colours = heads.map((head) => (isDark() ? lighter(headColour(head)) : headColour(head)));
  for (const line of lines) {
    context.globalAlpha = opacity(line.weight);
    context.strokeStyle = colours[line.map];
    context.beginPath();
    context.moveTo(MARGIN, (line.row + 0.5) * ROW);
    context.lineTo(WIDTH - MARGIN, (line.column + 0.5) * ROW);
    context.stroke();
  }
}

// `sums`: what the selected tokens together give to those on the other side, a background for these; null: none are.
export function linesView({ tokens, rows, columns, lines, heads, sums, state, onToken }) {
  const canvas = element("canvas", { class: "lines", role: "img", "aria-hidden": "true" });
  drawLines(canvas, lines, heads, Math.max(rows.length, columns.length));
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
  const node = element("div", { class: "lines-frame" }, strips[0].node, canvas, strips[1].node);
  node.style.setProperty("--from-width", `${columnWidth(rows.map((at) => tokens[at]))}px`);
  node.style.setProperty("--to-width", `${columnWidth(columns.map((at) => tokens[at]))}px`);
  node.style.setProperty("--colour", headColour(heads[0]));
  return { node, update: () => strips.forEach((strip) => strip.update()) };
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
