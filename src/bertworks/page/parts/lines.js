// Attention as lines between two columns of tokens: a colour for each head, opacity for the weight.

import { element, svgElement } from "./dom.js";
import { tokenLabel } from "./matrix.js";
import { strongest } from "./maps.js";
import { headColour } from "./state.js";

export const ROW = 22; // pixels
const WIDTH = 320;
const MAX_LINES = 20000;
const MARGIN = 6;

// The lines to draw: of the selected tokens, or of all; `maps` has one for each head.
export function chooseLines(maps, heads, n, state) {
  const selected = new Set(state.tokens);
  const lines = [];
  let share = 0;
  maps.forEach((map, number) => {
    let kept = map;
    if (selected.size) {
      kept = map.map((weight, at) => (selected.has(state.direction === "from" ? Math.floor(at / n) : at % n) ? weight : 0));
    }
    const { chosen, share: shown } = strongest(kept, selected.size ? 0 : state.threshold, Math.floor(MAX_LINES / maps.length));
    share += shown / maps.length;
    for (const at of chosen) {
      lines.push({ head: heads[number], from: Math.floor(at / n), to: at % n, weight: kept[at] });
    }
  });
  return { lines: lines.sort((a, b) => a.weight - b.weight), share }; // the strongest on top
}

export function drawLines(canvas, lines, n) {
  const scale = Math.min(window.devicePixelRatio || 1, 16000 / (n * ROW));
  canvas.width = WIDTH * scale;
  canvas.height = n * ROW * scale;
  canvas.style.setProperty("width", `${WIDTH}px`);
  canvas.style.setProperty("height", `${n * ROW}px`);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.lineWidth = 1.6;
  for (const line of lines) {
    context.globalAlpha = Math.min(1, Math.max(0.04, line.weight));
    context.strokeStyle = headColour(line.head);
    context.beginPath();
    context.moveTo(MARGIN, (line.from + 0.5) * ROW);
    context.lineTo(WIDTH - MARGIN, (line.to + 0.5) * ROW);
    context.stroke();
  }
}

export function linesView(tokens, lines, state, onToken) {
  const n = tokens.length;
  const canvas = element("canvas", { class: "lines", role: "img" });
  drawLines(canvas, lines, n);
  const column = (side) => {
    const list = element("div", { class: `line-tokens ${side}`, role: "group" });
    tokens.forEach((token, at) => {
      const isSelected = state.tokens.includes(at) && state.direction === side;
      const button = element("button", { type: "button", class: "token-row", "aria-pressed": String(isSelected) }, tokenLabel(token));
      button.addEventListener("click", (event) => onToken(at, side, event.shiftKey || event.ctrlKey || event.metaKey));
      list.append(button);
    });
    return list;
  };
  return element("div", { class: "lines-frame" }, column("from"), canvas, column("to"));
}

// The same picture as SVG, for papers: words are text.
export function linesSvg(tokens, lines, title) {
  const n = tokens.length;
  const side = 150;
  const width = WIDTH + 2 * side;
  const svg = svgElement("svg", {
    xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${n * ROW}`, width, height: n * ROW,
    "font-family": "sans-serif", "font-size": 13,
  }, svgElement("title", {}, title));
  for (const line of lines) {
    svg.append(svgElement("line", {
      x1: side + MARGIN, y1: (line.from + 0.5) * ROW, x2: side + WIDTH - MARGIN, y2: (line.to + 0.5) * ROW,
      stroke: headColour(line.head), "stroke-width": 1.6, "stroke-opacity": Math.min(1, Math.max(0.04, line.weight)).toFixed(3),
    }));
  }
  tokens.forEach((token, at) => {
    const y = (at + 0.5) * ROW + 4;
    svg.append(svgElement("text", { x: side - 4, y, "text-anchor": "end" }, token.text));
    svg.append(svgElement("text", { x: side + WIDTH + 4, y }, token.text));
  });
  return svg;
}
