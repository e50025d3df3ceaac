// Tokens beside a picture, as buttons; of a long text, only those near the visible part are elements.

import { element } from "./dom.js";

const ALWAYS_WHOLE = 64; // tokens
const AROUND = 12; // tokens beyond the visible part, for those who go on by keyboard

export function tokenLabel(token) {
  return element("span", { class: token.special ? "piece special" : "piece", dir: "auto" }, token.text);
}

export class TokenStrip {
  // `size`: of a token along the strip, in pixels; `make(at)`: its element; `viewport`: what scrolls, if not the window.
  constructor(length, { size, make, className, axis = "y", viewport = null }) {
    Object.assign(this, { length, size, make, axis, viewport });
    this.node = element("div", { class: `strip ${className}`, role: "group" });
    this.node.style.setProperty(axis === "y" ? "height" : "width", `${length * size}px`);
    this.items = new Map();
    if (length <= ALWAYS_WHOLE) this.fill(0, length);
  }

  update() {
    if (this.length <= ALWAYS_WHOLE) return;
    const box = this.node.getBoundingClientRect();
    const [start, end] = this.axis === "y" ? ["top", "bottom"] : ["left", "right"];
    const port = this.viewport?.getBoundingClientRect() ?? { top: 0, left: 0, bottom: window.innerHeight, right: window.innerWidth };
    const first = Math.floor((Math.max(port[start], 0) - box[start]) / this.size) - AROUND;
    const last = Math.ceil((Math.min(port[end], this.axis === "y" ? window.innerHeight : window.innerWidth) - box[start]) / this.size) + AROUND;
    this.fill(Math.max(0, first), Math.min(this.length, last));
  }

  fill(first, last) {
    for (const [at, item] of this.items) {
      if ((at >= first && at < last) || item.contains(document.activeElement)) continue;
      item.remove();
      this.items.delete(at);
    }
    let next = null; // items are in order, for the keyboard
    for (let at = last - 1; at >= first; at -= 1) {
      let item = this.items.get(at);
      if (!item) {
        item = this.make(at);
        item.style.setProperty(this.axis === "y" ? "top" : "left", `${at * this.size}px`);
        this.items.set(at, item);
        this.node.insertBefore(item, next);
      }
      next = item;
    }
  }
}

// How wide a text is in a column, in pixels, without measuring it: so that pictures are the same everywhere.
export function textWidth(text) {
  let width = 0;
  for (const character of text) width += character.codePointAt(0) >= 0x2e80 ? 14 : 8;
  return width;
}

export function columnWidth(tokens) {
  return Math.min(260, Math.max(48, 16 + tokens.reduce((widest, token) => Math.max(widest, textWidth(token.text)), 0)));
}
