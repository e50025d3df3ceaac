// What the attention page shows, and how that is written into its address: #L10H4,t3,lines,words

export const VIEWS = ["grid", "lines", "matrix", "text", "qk", "distance", "names", "flow", "difference"];
export const PAIRS = { all: [null, null], aa: [0, 0], ab: [0, 1], ba: [1, 0], bb: [1, 1] };
export const THRESHOLD = 0.02; // of the weights that are drawn

export function defaultState(nTokens, layers) {
  return {
    view: nTokens > 64 ? "text" : "lines",
    layer: layers[0],
    heads: [0],
    tokens: [], // selected ones; none: all
    direction: "from",
    words: false,
    norm: false,
    specials: true,
    zoom: false,
    pair: "all",
    threshold: THRESHOLD,
  };
}

const FLAGS = { words: ["words", true], norm: ["norm", true], specials: ["nospecials", false], zoom: ["zoom", true] };

export function toAddress(state) {
  const parts = [`L${state.layer}H${state.heads.join("+")}`];
  if (state.tokens.length) parts.push(`t${state.tokens.join("+")}`);
  parts.push(state.view);
  if (state.direction !== "from") parts.push(state.direction);
  for (const [name, [word, value]] of Object.entries(FLAGS)) if (state[name] === value) parts.push(word);
  if (state.pair !== "all") parts.push(state.pair);
  if (state.threshold !== THRESHOLD) parts.push(`min${state.threshold}`);
  return `#${parts.join(",")}`;
}

// What an address does not say is as in `state`; what cannot be is left out. `sizes`: {layers: [...], heads, pieces,
// words, views: [...]}.
export function fromAddress(address, state, sizes) {
  const result = { ...state };
  const parts = address.replace(/^#/, "").split(",");
  for (const part of parts) {
    const head = /^L(\d+)H(\d+(?:\+\d+)*)$/.exec(part);
    const threshold = /^min(0(?:\.\d+)?)$/.exec(part);
    if (head) {
      const heads = numbers(head[2], sizes.heads);
      if (sizes.layers.includes(Number(head[1]))) result.layer = Number(head[1]);
      if (heads.length) result.heads = heads;
    } else if (threshold) result.threshold = Math.min(0.5, Number(threshold[1]));
    else if (sizes.views.includes(part)) result.view = part;
    else if (part === "from" || part === "to") result.direction = part;
    else if (Object.hasOwn(PAIRS, part)) result.pair = part;
    for (const [name, [word, value]] of Object.entries(FLAGS)) if (part === word) result[name] = value;
  }
  for (const part of parts) { // when it is known whether they are words
    const tokens = /^t(\d+(?:\+\d+)*)$/.exec(part);
    if (tokens) result.tokens = numbers(tokens[1], result.words ? sizes.words : sizes.pieces);
  }
  return result;
}

function numbers(text, size) {
  return [...new Set(text.split("+").map(Number))].filter((number) => number < size).sort((a, b) => a - b);
}

// Sixteen colours that differ in hue and lightness; the first ones are told apart by people with any colour vision.
export const COLOURS = [
  "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d1f", "#7a52c7",
  "#b3002d", "#4d7f17", "#00827f", "#a04000", "#5b6bbf", "#c2185b", "#3e7cb1", "#6d4c41",
];

export function headColour(head) {
  return COLOURS[head % COLOURS.length];
}

// The same, to be seen on a dark page.
export function lighter(colour) {
  return `#${rgb(colour).map((part) => Math.round(part + 0.35 * (255 - part)).toString(16).padStart(2, "0")).join("")}`;
}

export function rgb(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}
