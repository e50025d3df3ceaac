// A map as an image: a pixel for each pair of tokens, in the colour of its head.

import { element } from "./dom.js";
import { rgb } from "./state.js";

const MAX_LABELLED = 64; // tokens

// Weights 0..1 to opacity; the root shows small ones, too.
export function paint(canvas, map, n, colour) {
  canvas.width = n;
  canvas.height = n;
  const image = new ImageData(n, n);
  const [red, green, blue] = rgb(colour);
  for (let at = 0; at < n * n; at += 1) {
    image.data.set([red, green, blue, Math.round(255 * Math.sqrt(Math.min(1, map[at])))], 4 * at);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// Signed weights: one colour above 0, another below.
export function paintSigned(canvas, map, n, above, below) {
  canvas.width = n;
  canvas.height = n;
  const image = new ImageData(n, n);
  const [up, down] = [rgb(above), rgb(below)];
  for (let at = 0; at < n * n; at += 1) {
    const opacity = Math.round(255 * Math.sqrt(Math.min(1, Math.abs(map[at]))));
    image.data.set([...(map[at] >= 0 ? up : down), opacity], 4 * at);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The image with the tokens beside it, where there is room for them. `onPair(row, column)` hears of clicks and moves.
export function matrixView(tokens, draw, onPair) {
  const n = tokens.length;
  const canvas = element("canvas", { class: "matrix", role: "img" });
  draw(canvas);
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const place = (value, start, size) => Math.min(n - 1, Math.max(0, Math.floor(((value - start) / size) * n)));
    return [place(event.clientY, box.top, box.height), place(event.clientX, box.left, box.width)];
  };
  canvas.addEventListener("mousemove", (event) => onPair(...at(event), false));
  canvas.addEventListener("click", (event) => onPair(...at(event), true));
  if (n > MAX_LABELLED) return element("div", { class: "matrix-frame bare" }, canvas);
  const labels = (side) => element("div", { class: `matrix-${side}` }, ...tokens.map((token) => tokenLabel(token)));
  const frame = element("div", { class: "matrix-frame" }, labels("columns"), labels("rows"), canvas);
  frame.style.setProperty("--tokens", n);
  return frame;
}

export function tokenLabel(token) {
  return element("span", { class: token.special ? "piece special" : "piece", dir: "auto" }, token.text);
}
