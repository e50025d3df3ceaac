// Running text whose tokens are shaded by a weight each; tokens are buttons.

import { element } from "./dom.js";
import { headColour } from "./state.js";
import { tokenLabel } from "./strip.js";

// `weights`: of the tokens in `shown`; a line under a token is as thick as it is dark, since colour is not the only sign.
export function shadedText({ tokens, shown, weights, selected, directions, head, onToken }) {
  let largest = 0;
  for (const weight of weights) largest = Math.max(largest, weight);
  const node = element("div", { class: "shaded" });
  node.style.setProperty("--colour", headColour(head));
  let part = null;
  let paragraph = null;
  shown.forEach((at, place) => {
    const token = tokens[at];
    const itsPart = token.special ? (part ?? 0) : token.part;
    if (itsPart !== part) {
      part = itsPart;
      paragraph = element("p", { dir: directions[part] ?? "ltr" });
      node.append(paragraph);
    }
    const button = element("button", { type: "button", class: "shade", "data-key": `text-${at}`, "aria-pressed": String(selected.includes(at)), title: weights[place].toFixed(4) }, tokenLabel(token));
    button.style.setProperty("--weight", (largest > 0 ? weights[place] / largest : 0).toFixed(3));
    button.addEventListener("click", (event) => onToken(at, event.shiftKey || event.ctrlKey || event.metaKey));
    if (token.gap || token.special || tokens[at - 1]?.special) paragraph.append(" ");
    paragraph.append(button);
  });
  return node;
}
