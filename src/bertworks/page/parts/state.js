// What the attention page shows, and how that is written into its address: #L10H4,t3,lines,words

export const VIEWS = ["grid", "lines", "matrix", "text", "qk", "distance", "names", "flow", "difference"];
export const PAIRS = { all: [null, null], aa: [0, 0], ab: [0, 1], ba: [1, 0], bb: [1, 1] };

export function defaultState(nTokens) {
  return {
    view: nTokens > 64 ? "text" : "lines",
    layer: 0,
    heads: [0],
    tokens: [], // selected ones; none: all
    direction: "from",
    words: false,
    norm: false,
    specials: true,
    pair: "all",
    threshold: 0.02,
  };
}

const FLAGS = { words: ["words", true], norm: ["norm", true], specials: ["nospecials", false] };

export function toAddress(state) {
  const parts = [`L${state.layer}H${state.heads.join("+")}`];
  if (state.tokens.length) parts.push(`t${state.tokens.join("+")}`);
  parts.push(state.view);
  if (state.direction !== "from") parts.push(state.direction);
  for (const [name, [word, value]] of Object.entries(FLAGS)) if (state[name] === value) parts.push(word);
  if (state.pair !== "all") parts.push(state.pair);
  return `#${parts.join(",")}`;
}

// What an address does not say stays as it is; what cannot be is left out.
export function fromAddress(address, state, sizes) {
  const result = { ...state };
  for (const part of address.replace(/^#/, "").split(",")) {
    const head = /^L(\d+)H(\d+(?:\+\d+)*)$/.exec(part);
    const tokens = /^t(\d+(?:\+\d+)*)$/.exec(part);
    if (head) {
      const heads = numbers(head[2], sizes.heads);
      if (Number(head[1]) < sizes.layers) result.layer = Number(head[1]);
      if (heads.length) result.heads = heads;
    } else if (tokens) result.tokens = numbers(tokens[1], sizes.tokens);
    else if (VIEWS.includes(part)) result.view = part;
    else if (part === "from" || part === "to") result.direction = part;
    else if (part in PAIRS) result.pair = part;
    for (const [name, [word, value]] of Object.entries(FLAGS)) if (part === word) result[name] = value;
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

export function rgb(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}
