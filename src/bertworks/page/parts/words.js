// The map of a word: a point for each sentence, a layer at a time; a click or a key shows the sentence.

import { percent } from "./charts.js";
import { bilingual, element, inLanguage, replaceChildren } from "./dom.js";
import { readBlock } from "./payload.js";
import { groupColour, legend, Scatter } from "./scatter.js";

class WordPage {
  constructor() {
    this.meta = JSON.parse(document.getElementById("meta").textContent);
    this.contexts = Array.from(document.querySelectorAll("#contexts li"));
    this.layer = this.layerOfAddress() ?? this.meta.layer;
    this.alone = null; // the group that is shown alone
  }

  layerOfAddress() {
    const found = /^#L(\d+)$/.exec(location.hash);
    return found && Number(found[1]) < this.meta.layers.length ? Number(found[1]) : null;
  }

  async start() {
    this.points = new Float32Array((await readBlock("points")).buffer);
    this.labels = await readBlock("labels");
    const slider = element("input", { type: "range", min: 0, max: this.meta.layers.length - 1, value: this.layer, id: "layer" });
    slider.addEventListener("input", () => this.goTo(Number(slider.value)));
    this.slider = slider;
    this.caption = element("output", { for: "layer" });
    replaceChildren(document.getElementById("controls"), element("label", { for: "layer" }, bilingual("layer", "层")), " ", slider, " ", this.caption);
    this.map = element("div", {});
    this.text = element("div", {});
    this.shown = element("p", { class: "shown", role: "status", "aria-live": "polite" });
    const keys = element("p", { class: "dim" }, element("small", {}, bilingual("Arrow keys go from point to point, Esc lets go.", "方向键在点间移动，Esc 取消选择。")));
    replaceChildren(document.getElementById("view"), element("div", {}, this.map, keys), element("div", {}, this.text, this.shown));
    this.scatter = new Scatter(this.map, { onChoose: (at) => this.onChoose(at), onHover: (at) => this.show(at ?? this.scatter.chosen) });
    this.contexts.forEach((item, at) => item.addEventListener("click", () => this.scatter.choose(at)));
    document.getElementById("zh")?.addEventListener("change", () => this.render());
    window.addEventListener("hashchange", () => this.goTo(this.layerOfAddress() ?? this.layer));
    this.render();
  }

  goTo(layer) {
    this.layer = layer;
    this.alone = null;
    this.slider.value = String(layer);
    try {
      history.replaceState(null, "", `#L${layer}`);
    } catch {
      // a sandboxed frame has no address of its own
    }
    this.render();
  }

  onChoose(at) {
    this.contexts.forEach((item, other) => item.classList.toggle("chosen", other === at));
    if (at !== null) {
      const list = document.getElementById("contexts");
      list.scrollTop += this.contexts[at].getBoundingClientRect().top - list.getBoundingClientRect().top - 40;
    }
    this.show(at);
  }

  show(at) {
    replaceChildren(this.shown, ...(at === null ? [] : Array.from(this.contexts[at].childNodes, (node) => node.cloneNode(true))));
  }

  group(at) {
    return this.labels[this.layer * this.contexts.length + at];
  }

  // The points of a layer, (x, y) each; after them the embedding, if there is one.
  layerPoints() {
    const n = this.contexts.length + (this.meta.star ? 1 : 0);
    return Array.from({ length: n }, (_, at) => [this.points[2 * (this.layer * n + at)], this.points[2 * (this.layer * n + at) + 1]]);
  }

  render() {
    const points = this.layerPoints();
    const star = this.meta.star ? points.pop() : null;
    const name = this.layer === 0 ? inLanguage("embeddings", "嵌入") : `${this.layer} / ${this.meta.layers.length - 1}`;
    this.caption.textContent = name;
    this.slider.setAttribute("aria-valuetext", name);
    this.scatter.draw({
      points,
      star,
      groups: points.map((_, at) => this.group(at)),
      faded: (at) => this.alone !== null && this.group(at) !== this.alone,
      label: inLanguage(`layer ${name}: ${points.length} points, one for each sentence; arrow keys go from one to the next`, `层 ${name}：${points.length} 个点，每个句子一个；用方向键移动`),
    });
    replaceChildren(this.text, ...this.explanation());
    const several = this.meta.layers[this.layer].groups > 1;
    this.contexts.forEach((item, at) => {
      item.classList.toggle("hidden", this.alone !== null && this.group(at) !== this.alone);
      item.style.setProperty("--colour", several ? groupColour(this.group(at)) : "transparent");
    });
    document.body.dataset.ready = String(this.layer);
  }

  explanation() {
    const { variance, kept, groups } = this.meta.layers[this.layer];
    const names = Array.from(document.querySelectorAll(`#layers [data-layer="${this.layer}"] .group-words`), (item) => item.textContent);
    const verdict = document.querySelector(`#layers [data-layer="${this.layer}"] .verdict`);
    const shares = bilingual(
      `The two axes show ${percent(variance)} of the variance; of the ten nearest sentences of each, ${percent(kept)} are the nearest on the map, too.`,
      `两条轴显示了 ${percent(variance)} 的方差；每个句子最近的十个句子中，有 ${percent(kept)} 在图上仍是最近的。`,
    );
    return [
      element("p", {}, ...Array.from(verdict.childNodes, (node) => node.cloneNode(true))),
      groups > 1 ? legend(names, this.alone, (group) => this.showAlone(group)) : null,
      element("p", { class: "dim" }, shares, this.meta.star ? bilingual(" ★ is the word's embedding, without a context; an arrow points to it where it lies outside of the picture.", "★ 是该词不含上下文的嵌入；若在图外，则以箭头指示方向。") : ""),
    ].filter((node) => node !== null);
  }

  showAlone(group) {
    this.alone = group;
    this.render();
  }
}

new WordPage().start();
