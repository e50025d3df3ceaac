// A map as an image: a pixel for each pair of tokens, in the colour of its head.

import { element, isDark, svgElement } from "./dom.js";
import { lighter, rgb } from "./state.js";
import { TokenStrip, columnWidth, tokenLabel } from "./strip.js";

const SIZE = 600; // pixels
const LABELLED = 11; // pixels of a cell that has room for a label
const ENLARGED = 15;

// Weights 0..1 to opacity; the root shows small ones, too. Below 0 in another colour; not comparable (NaN): grey.
export function paint(canvas, weights, width, colour, below = "#d55e00") {
  const height = width ? weights.length / width : 0;
  canvas.width = Math.max(1, width);
  canvas.height = Math.max(1, height);
  if (!weights.length) return;
  const image = new ImageData(width, height);
  const [up, down] = [colour, below].map((one) => rgb(isDark() ? lighter(one) : one));
  for (let at = 0; at < weights.length; at += 1) {
    const weight = weights[at];
    const [red, green, blue] = weight < 0 ? down : up;
    const place = 4 * at;
    if (Number.isNaN(weight)) {
      image.data.fill(128, place, place + 3);
      image.data[place + 3] = 70;
      continue;
    }
    image.data[place] = red;
    image.data[place + 1] = green;
    image.data[place + 2] = blue;
    image.data[place + 3] = Math.round(255 * Math.sqrt(Math.min(1, Math.abs(weight))));
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The image with the tokens beside it, where there is room for them. `onPair(row, column)` hears of the places (not the
// tokens) that are pointed at, `onToken(token, side, isMore)` of labels and clicks.
export function matrixView({ tokens, rows, columns, canvas, state, onToken, onPair, key }) {
  const largest = Math.max(rows.length, columns.length, 1);
  const isBare = SIZE / largest < LABELLED && !state.zoom;
  const cell = isBare ? SIZE / largest : Math.min(28, Math.max(SIZE / largest, ENLARGED));
  canvas.setAttribute("class", "matrix");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-hidden", "true");
  canvas.style.setProperty("width", `${columns.length * cell}px`);
  canvas.style.setProperty("height", `${rows.length * cell}px`);
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const place = (value, start, size, n) => Math.min(n - 1, Math.max(0, Math.floor(((value - start) / size) * n)));
    return [place(event.clientY, box.top, box.height, rows.length), place(event.clientX, box.left, box.width, columns.length)];
  };
  canvas.addEventListener("mousemove", (event) => onPair(...at(event)));
  canvas.addEventListener("click", (event) => onToken(rows[at(event)[0]], "from", event.shiftKey || event.ctrlKey || event.metaKey));
  const picture = element("div", { class: "matrix-picture" }, canvas, ...marks(rows, columns, cell, state));
  if (isBare) return { node: element("div", { class: "matrix-frame bare" }, picture), update: () => {} };
  const scroll = element("div", { class: "matrix-scroll" });
  const strips = [["from", rows, "y"], ["to", columns, "x"]].map(([side, shown, axis]) => new TokenStrip(shown.length, {
    size: cell,
    axis,
    viewport: scroll,
    className: `matrix-tokens ${side}`,
    make: (place) => {
      const token = shown[place];
      const isSelected = state.tokens.includes(token) && state.direction === side;
      const button = element("button", { type: "button", class: "matrix-label", "data-key": `${key}-${side}-${token}`, "aria-pressed": String(isSelected) }, tokenLabel(tokens[token]));
      button.addEventListener("click", (event) => onToken(token, side, event.shiftKey || event.ctrlKey || event.metaKey));
      return button;
    },
  }));
  const frame = element("div", { class: "matrix-frame" }, element("div", { class: "matrix-corner" }), strips[1].node, strips[0].node, picture);
  frame.style.setProperty("--cell", `${cell}px`);
  frame.style.setProperty("--rows-width", `${Math.min(150, columnWidth(rows.map((token) => tokens[token])))}px`);
  frame.style.setProperty("--columns-height", `${Math.min(130, columnWidth(columns.map((token) => tokens[token])))}px`);
  scroll.append(frame);
  const update = () => strips.forEach((strip) => strip.update());
  scroll.addEventListener("scroll", update, { passive: true });
  return { node: scroll, update };
}

// Boxes around the selected rows or columns.
function marks(rows, columns, cell, state) {
  const isFrom = state.direction === "from";
  return (isFrom ? rows : columns).flatMap((token, at) => {
    if (!state.tokens.includes(token)) return [];
    const mark = element("div", { class: "matrix-mark" });
    mark.style.setProperty(isFrom ? "top" : "left", `${at * cell}px`);
    mark.style.setProperty(isFrom ? "height" : "width", `${cell}px`);
    mark.style.setProperty(isFrom ? "width" : "height", "100%");
    return [mark];
  });
}

// Several of them side by side as SVG: the image is enlarged cell by cell, words are text.
export function matricesSvg(tokens, figures) {
  const parts = [];
  let [left, height] = [0, 0];
  for (const { title, rows, columns, canvas } of figures) {
    const cell = Math.max(2, Math.min(22, Math.floor(900 / Math.max(rows.length, columns.length, 1))));
    const isLabelled = cell >= 9;
    const size = Math.min(13, cell);
    const [side, top] = [rows, columns].map((shown) => (isLabelled ? Math.ceil((columnWidth(shown.map((at) => tokens[at])) * size) / 13) : 4));
    const [x, y] = [left + side, 24 + top];
    parts.push(svgElement("text", { x: left, y: 16, "font-size": 14, "font-weight": "bold" }, title));
    parts.push(svgElement("image", { x, y, width: columns.length * cell, height: rows.length * cell, href: enlarged(canvas, cell) }));
    parts.push(svgElement("rect", { x, y, width: columns.length * cell, height: rows.length * cell, fill: "none", stroke: "#999999", "stroke-width": 0.5 }));
    if (isLabelled) {
      rows.forEach((at, row) => parts.push(svgElement("text", { x: x - 4, y: y + (row + 0.5) * cell + 0.35 * size, "font-size": size, "text-anchor": "end" }, tokens[at].text)));
      columns.forEach((at, column) => parts.push(svgElement("text", { transform: `translate(${x + (column + 0.5) * cell + 0.35 * size} ${y - 4}) rotate(-90)`, "font-size": size }, tokens[at].text)));
    }
    left = x + columns.length * cell + 30;
    height = Math.max(height, y + rows.length * cell + 6);
  }
  const width = Math.max(1, left - 24);
  return svgElement("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "sans-serif" }, ...parts);
}

function enlarged(canvas, cell) {
  const large = element("canvas", { width: canvas.width * cell, height: canvas.height * cell });
  const context = large.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, 0, large.width, large.height);
  return large.toDataURL();
}
