// The examples of a report on a map; they are a list in the page, with their places.

import { bilingual, element, inLanguage, replaceChildren } from "./dom.js";
import { legend, Scatter } from "./scatter.js";

export function drawEmbeddingMap(section) {
  const items = Array.from(section.querySelectorAll(".map-examples li"));
  const [host, side] = section.querySelector(".map-and-text").children;
  const names = Array.from(side.querySelectorAll(".map-groups li"));
  const shown = element("p", { class: "shown", role: "status", "aria-live": "polite" });
  const keys = element("p", { class: "dim" }, element("small", {}, bilingual("Click a point, or go from point to point by arrow keys; Esc lets go.", "点击一个点，或用方向键在点间移动；Esc 取消选择。")));
  const map = element("div", {});
  const groups = element("div", {});
  replaceChildren(host, map, keys);
  replaceChildren(side, groups, shown);

  const show = (at) => replaceChildren(shown, ...(at === null ? [] : Array.from(items[at].childNodes, (node) => node.cloneNode(true))));
  const scatter = new Scatter(map, { onChoose: show, onHover: (at) => show(at ?? scatter.chosen) });
  const numbers = items.map((item) => Number(item.dataset.group));
  let alone = null;

  function render() {
    const nMarked = items.filter((item) => "marked" in item.dataset).length;
    scatter.draw({
      points: items.map((item) => [Number(item.dataset.x), Number(item.dataset.y)]),
      groups: numbers,
      marked: items.map((item) => "marked" in item.dataset),
      faded: (at) => alone !== null && numbers[at] !== alone,
      label: inLanguage(`${items.length} points, one for each example; ${nMarked} have a ring; arrow keys go from one to the next`, `${items.length} 个点，每个样本一个；${nMarked} 个带圆环；用方向键移动`),
    });
    const texts = names.map((name) => element("span", {}, ...Array.from(name.childNodes, (node) => node.cloneNode(true))));
    replaceChildren(groups, legend(texts, alone, (group) => {
      alone = group;
      render();
    }));
  }

  document.getElementById("zh")?.addEventListener("change", render);
  render();
}
