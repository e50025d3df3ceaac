// The map of a word: a point for each sentence, a layer at a time; a click shows the sentence.

import { percent } from "./charts.js";
import { bilingual, element, inLanguage, replaceChildren, svgElement } from "./dom.js";
import { readBlock } from "./payload.js";
import { COLOURS } from "./state.js";

const SIZE = 560;
const MARGIN = 24;
const SHAPES = ["circle", "square", "triangle", "diamond", "plus", "cross"];

// Colour is not the only sign of a group.
function mark(shape, x, y, radius) {
  const polygon = (...points) => svgElement("polygon", { points: points.map(([dx, dy]) => `${x + dx * radius},${y + dy * radius}`).join(" ") });
  if (shape === "square") return polygon([-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]);
  if (shape === "triangle") return polygon([0, -1.2], [1.1, 0.9], [-1.1, 0.9]);
  if (shape === "diamond") return polygon([0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]);
  if (shape === "plus") return polygon([-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4], [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]);
  if (shape === "cross") return polygon([-1.2, -0.7], [-0.7, -1.2], [0, -0.5], [0.7, -1.2], [1.2, -0.7], [0.5, 0], [1.2, 0.7], [0.7, 1.2], [0, 0.5], [-0.7, 1.2], [-1.2, 0.7], [-0.5, 0]);
  return svgElement("circle", { cx: x, cy: y, r: radius });
}

class WordPage {
  constructor() {
    this.meta = JSON.parse(document.getElementById("meta").textContent);
    this.contexts = Array.from(document.querySelectorAll("#contexts li"));
    this.layer = this.meta.layers.length - 1;
    this.chosen = null;
  }

  async start() {
    this.points = new Float32Array((await readBlock("points")).buffer);
    this.labels = await readBlock("labels");
    const slider = element("input", { type: "range", min: 0, max: this.meta.layers.length - 1, value: this.layer, id: "layer", "aria-label": "layer" });
    slider.addEventListener("input", () => {
      this.layer = Number(slider.value);
      this.render();
    });
    this.caption = element("output", { for: "layer" });
    replaceChildren(document.getElementById("controls"), element("label", {}, bilingual("layer", "层"), " ", slider, " ", this.caption));
    this.contexts.forEach((item, at) => item.addEventListener("click", () => this.choose(at)));
    document.getElementById("zh")?.addEventListener("change", () => this.render());
    this.render();
  }

  choose(at) {
    this.chosen = at;
    this.render();
    const text = this.contexts[at].textContent;
    document.getElementById("status").textContent = text;
  }

  // The points of a layer, (x, y) each; the last one is the embedding.
  layerPoints() {
    const n = this.contexts.length + 1;
    return Array.from({ length: n }, (_, at) => [this.points[2 * (this.layer * n + at)], this.points[2 * (this.layer * n + at) + 1]]);
  }

  render() {
    const all = this.layerPoints();
    const { variance, kept, groups, silhouette, chance } = this.meta.layers[this.layer];
    const [xs, ys] = [all.map(([x]) => x), all.map(([, y]) => y)];
    const [left, top] = [Math.min(...xs), Math.min(...ys)];
    const scale = (SIZE - 2 * MARGIN) / (Math.max(Math.max(...xs) - left, Math.max(...ys) - top) || 1);
    const svg = svgElement("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", class: "word-map", "aria-label": inLanguage("one point for each sentence", "每个句子一个点") });
    all.forEach(([x, y], at) => {
      const place = [MARGIN + (x - left) * scale, MARGIN + (y - top) * scale];
      if (at === this.contexts.length) {
        svg.append(svgElement("text", { x: place[0], y: place[1], class: "static" }, "★"));
        return;
      }
      const group = this.labels[this.layer * this.contexts.length + at];
      const point = mark(SHAPES[group % SHAPES.length], ...place, at === this.chosen ? 8 : 4.5);
      point.setAttribute("fill", COLOURS[group % COLOURS.length]);
      point.setAttribute("class", at === this.chosen ? "point chosen" : "point");
      point.addEventListener("click", () => this.choose(at));
      point.append(svgElement("title", {}, this.contexts[at].textContent));
      svg.append(point);
    });
    const words = Array.from(document.querySelectorAll(`#groups [data-layer="${this.layer}"]`), (item) => item.textContent);
    const legend = element("ul", { class: "groups" }, ...words.map((text, group) => {
      const item = element("li", {}, svgElement("svg", { viewBox: "0 0 16 16", class: "group-mark" }, mark(SHAPES[group % SHAPES.length], 8, 8, 5)), " ", text);
      item.style.setProperty("color", COLOURS[group % COLOURS.length]);
      return item;
    }));
    const numbers = groups > 1
      ? bilingual(`${groups} groups: silhouette ${silhouette.toFixed(2)}, by chance at most ${chance.toFixed(2)}.`, `${groups} 组：轮廓系数 ${silhouette.toFixed(2)}，随机情形最多 ${chance.toFixed(2)}。`)
      : bilingual("One group: no division is better than chance.", "一组：任何划分都不优于随机。");
    const honest = bilingual(`The two axes show ${percent(variance)} of the variance; ${percent(kept)} of the ten nearest sentences are so on the map, too. ★ is the word's embedding, without a context.`, `两条轴显示了 ${percent(variance)} 的方差；最近的十个句子中有 ${percent(kept)} 在图上也相邻。★ 是该词不含上下文的嵌入。`);
    this.caption.textContent = this.layer === 0 ? inLanguage("embeddings", "嵌入") : `${this.layer} / ${this.meta.layers.length - 1}`;
    replaceChildren(document.getElementById("view"), svg, element("div", {}, element("p", {}, numbers), legend, element("p", { class: "dim" }, honest)));
    this.contexts.forEach((item, at) => {
      item.classList.toggle("chosen", at === this.chosen);
      item.style.setProperty("--colour", COLOURS[this.labels[this.layer * this.contexts.length + at] % COLOURS.length]);
    });
    document.body.dataset.ready = String(this.layer);
  }
}

new WordPage().start();
