// The attention page: reads the tokens and the numbers of the document, keeps what is shown, and hears the keys.

import { bilingual, element, inLanguage, replaceChildren } from "./dom.js";
import { shownMap } from "./maps.js";
import { Blocks, decodeRoot, readBlock } from "./payload.js";
import { COLOURS, PAIRS, VIEWS, defaultState, fromAddress, headColour, toAddress } from "./state.js";
import { VIEW_OF } from "./views.js";

const TITLES = {
  grid: ["All heads", "全部注意力头"],
  lines: ["Lines", "连线"],
  matrix: ["Matrix", "矩阵"],
  text: ["Text", "文本"],
  qk: ["Query and key", "查询与键"],
  distance: ["Distance", "距离"],
  names: ["Names", "命名"],
  flow: ["Heads together", "各头合并"],
  difference: ["Difference", "差异"],
};
const PAIR_TITLES = { all: ["all", "全部"], aa: ["A → A", "A → A"], ab: ["A → B", "A → B"], ba: ["B → A", "B → A"], bb: ["B → B", "B → B"] };
const HAS_PICTURE = ["lines", "matrix", "flow", "difference"];

class AttentionPage {
  constructor() {
    this.meta = JSON.parse(document.getElementById("meta").textContent);
    this.pieces = readTokens("tokens");
    this.words = joinWords(this.pieces, this.meta.starts);
    this.hasPair = this.pieces.some((piece) => piece.part === 1);
    this.blocks = new Blocks(readBlock, 3);
    this.views = VIEWS.filter((view) => view !== "difference" || this.meta.other);
    this.sizes = { layers: this.meta.layers, heads: this.meta.heads, pieces: this.pieces.length, words: this.words.length, views: this.views };
    this.state = this.stateOf(location.hash);
    this.view = document.getElementById("view");
    this.status = document.getElementById("status");
    this.namesSection = document.getElementById("names");
  }

  async start() {
    this.norms = await floats("norms");
    if (this.meta.other) {
      this.otherPieces = readTokens("other-tokens");
      this.otherWords = joinWords(this.otherPieces, this.meta.other.starts);
      this.otherNorms = await floats("other-norms");
    }
    this.makeControls();
    window.addEventListener("hashchange", () => {
      this.state = this.stateOf(location.hash);
      this.render();
    });
    document.addEventListener("keydown", (event) => this.onKey(event));
    const drawAnew = () => {
      this.grid = null;
      this.render();
    };
    document.getElementById("zh")?.addEventListener("change", drawAnew);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAnew);
    for (const event of ["scroll", "resize"]) window.addEventListener(event, () => this.onScroll(), { passive: true });
    window.addEventListener("beforeprint", () => this.onPrint(true));
    window.addEventListener("afterprint", () => this.onPrint(false));
    await this.render();
  }

  stateOf(address) {
    return fromAddress(address, defaultState(this.pieces.length, this.meta.layers), this.sizes);
  }

  // ------------------------------------------------------------ maps

  get tokens() {
    return this.state.words ? this.words : this.pieces;
  }

  wordOf(piece) {
    return this.meta.starts.findLastIndex((start) => start <= piece);
  }

  async rawMap(layer, head) {
    const n = this.pieces.length;
    return decodeRoot((await this.blocks.get(`layer-${layer}`)).subarray(head * n * n, (head + 1) * n * n));
  }

  async meanOfHeads(layer) {
    const { heads } = this.meta;
    const mean = new Float32Array(this.pieces.length ** 2);
    for (let head = 0; head < heads; head += 1) (await this.rawMap(layer, head)).forEach((weight, at) => { mean[at] += weight / heads; });
    return mean;
  }

  // A head's map as it is shown; `changes`: to what is switched on.
  async shown(layer, head, changes = {}) {
    return this.shownOf(await this.rawMap(layer, head), this.normsOf(this.norms, this.pieces.length, layer, head), changes);
  }

  async shownOther(layer, head) {
    const n = this.otherPieces.length;
    const map = decodeRoot((await this.blocks.get(`other-${layer}`)).subarray(head * n * n, (head + 1) * n * n));
    const tokens = this.state.words ? this.otherWords : this.otherPieces;
    return this.shownOf(map, this.normsOf(this.otherNorms, n, layer, head), {}, tokens, this.meta.other.starts);
  }

  normsOf(norms, n, layer, head) {
    const start = (this.meta.layers.indexOf(layer) * this.meta.heads + head) * n;
    return norms.subarray(start, start + n);
  }

  // `norms`: null where they are in the map already.
  shownOf(map, norms, changes = {}, tokens = this.tokens, starts = this.meta.starts) {
    const { words, norm, specials, pair } = { ...this.state, ...changes };
    const [from, to] = PAIRS[pair];
    return shownMap(map, tokens, { starts: words ? starts : null, norms: norm ? norms : null, specials, from, to });
  }

  // Small maps of all heads; of a short text they are the maps themselves.
  async thumbnails() {
    if (document.getElementById("thumbnails")) return readBlock("thumbnails");
    const layers = await Promise.all(this.meta.layers.map((layer) => readBlock(`layer-${layer}`)));
    const all = new Uint8Array(layers.reduce((size, layer) => size + layer.length, 0));
    layers.forEach((layer, at) => all.set(layer, at * layer.length));
    return all;
  }

  async scales() {
    this.keptScales ??= floats("qk-scales");
    return this.keptScales;
  }

  // ------------------------------------------------------------ names

  names(layer, head) {
    return this.meta.names?.[`${layer}-${head}`] ?? [];
  }

  // The names that an atlas gives, {name: [sign, English, Chinese]}; those of a user's own relations are as they are.
  get nameTitles() {
    return this.meta.nameTitles ?? {};
  }

  nameSign(name) {
    return Object.hasOwn(this.nameTitles, name) ? this.nameTitles[name][0] : name.slice(0, 2);
  }

  nameTitle(name) {
    return Object.hasOwn(this.nameTitles, name) ? this.nameTitles[name].slice(1) : [name, name];
  }

  nameColour(name) {
    const at = Object.keys(this.nameTitles).indexOf(name);
    return COLOURS[at < 0 ? 12 : at];
  }

  title(layer, head) {
    const names = this.names(layer, head).map((name) => inLanguage(...this.nameTitle(name.name))).join(", ");
    return `L${layer}H${head}${names ? ` ${names}` : ""}`;
  }

  // The table of the document, whose heads become buttons.
  namesTable() {
    for (const cell of this.namesSection.querySelectorAll("[data-head]:not(:has(button))")) {
      const [layer, head] = cell.dataset.head.split("-").map(Number);
      const button = element("button", { type: "button", "data-key": `named-${layer}-${head}` }, cell.textContent);
      button.addEventListener("click", () => this.change({ layer, heads: [head] }));
      replaceChildren(cell, button);
    }
    return this.namesSection;
  }

  // ------------------------------------------------------------ changes

  change(changes) {
    const wasWords = this.state.words;
    Object.assign(this.state, changes);
    if (this.state.words !== wasWords) this.state.tokens = this.translated(this.state.tokens);
    try {
      history.replaceState(null, "", toAddress(this.state));
    } catch {
      // A page inside of a notebook has no address of its own.
    }
    return this.render();
  }

  // Selected pieces to words, or words to pieces.
  translated(tokens) {
    const { starts } = this.meta;
    if (this.state.words) return [...new Set(tokens.map((piece) => this.wordOf(piece)))];
    return tokens.flatMap((word) => {
      const end = starts[word + 1] ?? this.pieces.length;
      return Array.from({ length: end - starts[word] }, (_, at) => starts[word] + at);
    });
  }

  onToken(token, direction, isMore) {
    const { tokens, direction: before } = this.state;
    const isSame = before === direction;
    let selected = [token];
    if (isSame && tokens.includes(token)) selected = isMore ? tokens.filter((other) => other !== token) : [];
    else if (isSame && isMore) selected = [...tokens, token].sort((a, b) => a - b);
    this.change({ tokens: selected, direction });
  }

  onHead(head, isMore) {
    const { heads } = this.state;
    if (!isMore) return this.change({ heads: [head] });
    const others = heads.filter((other) => other !== head);
    const chosen = heads.includes(head) ? others : [...heads, head].sort((a, b) => a - b);
    return this.change({ heads: chosen.length ? chosen : [head] });
  }

  onKey(event) {
    const { target } = event;
    const takesKeys = target.matches?.("select, textarea, input:not([type=checkbox])");
    if (event.ctrlKey || event.metaKey || event.altKey || takesKeys) return;
    const { layer, heads, words, norm, specials } = this.state;
    const { layers } = this.meta;
    const moved = (list, value, by) => list[(list.indexOf(value) + by + list.length) % list.length];
    const all = Array.from({ length: this.meta.heads }, (_, head) => head);
    const changes = {
      ArrowUp: () => ({ layer: moved(layers, layer, -1) }),
      ArrowDown: () => ({ layer: moved(layers, layer, 1) }),
      ArrowLeft: () => ({ heads: [moved(all, heads[0], -1)] }),
      ArrowRight: () => ({ heads: [moved(all, heads[0], 1)] }),
      a: () => ({ heads: heads.length < all.length ? all : [0] }),
      w: () => ({ words: !words }),
      n: () => ({ norm: !norm }),
      s: () => ({ specials: !specials }),
      Escape: () => ({ tokens: [] }),
    }[event.key];
    if (changes) {
      event.preventDefault();
      const isInGrid = target.classList?.contains("cell");
      this.change(changes()).then(() => {
        if (isInGrid) this.grid?.cells.get(`${this.state.layer}-${this.state.heads[0]}`)?.focus();
      });
    } else if (event.key === "?") document.getElementById("help").toggleAttribute("open");
    else if (/^[1-9]$/.test(event.key) && this.views[event.key - 1]) this.change({ view: this.views[event.key - 1] });
  }

  say(english, chinese) {
    const text = inLanguage(english, chinese);
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  // ------------------------------------------------------------ controls

  makeControls() {
    const choice = (name, options, label) => {
      const select = element("select", { id: `choose-${name}` }, ...options.map(([value, title]) => element("option", { value }, title)));
      select.addEventListener("change", () => this.change({ [name]: name === "layer" ? Number(select.value) : select.value }));
      return element("label", { class: `flag-${name}` }, bilingual(...label), " ", select);
    };
    const flag = (name, label, key) => {
      const box = element("input", { type: "checkbox", id: `choose-${name}` });
      box.addEventListener("change", () => this.change({ [name]: box.checked }));
      return element("label", { title: key, class: `flag-${name}` }, box, " ", bilingual(...label));
    };
    const button = (id, label, action) => element("button", { type: "button", id, class: "export", onclick: action }, label);
    this.slider = element("input", { type: "range", id: "choose-threshold", min: 0, max: 0.5, step: 0.01 });
    this.slider.addEventListener("input", () => this.change({ threshold: Number(this.slider.value) }));
    this.threshold = element("output", { for: "choose-threshold" });
    this.tabs = element("nav", { class: "tabs" }, ...this.views.map((view, at) => {
      const tab = element("button", { type: "button", "data-view": view, title: at + 1 }, bilingual(...TITLES[view]));
      tab.addEventListener("click", () => this.change({ view }));
      return tab;
    }));
    this.headButtons = element("div", { class: "heads", role: "group" }, ...Array.from({ length: this.meta.heads }, (_, head) => {
      const chip = element("button", { type: "button", class: "head", "data-head": head }, `H${head}`);
      chip.style.setProperty("--colour", headColour(head));
      chip.addEventListener("click", (event) => this.onHead(head, event.shiftKey || event.ctrlKey || event.metaKey));
      return chip;
    }));
    replaceChildren(
      document.getElementById("controls"),
      this.tabs,
      element("div", { class: "row" }, choice("layer", this.meta.layers.map((layer) => [layer, `L${layer}`]), ["layer", "层"]), this.headButtons),
      element("div", { class: "row" },
        flag("words", ["words", "按词"], "w"),
        flag("norm", ["by norm", "按范数"], "n"),
        flag("specials", ["special tokens", "特殊词元"], "s"),
        this.hasPair ? choice("pair", Object.keys(PAIRS).map((pair) => [pair, ""]), ["pair", "句对"]) : null,
        element("label", { class: "threshold" }, bilingual("at least", "不低于"), " ", this.slider, this.threshold),
        button("save-svg", "SVG", () => this.save("svg")),
        button("save-png", "PNG", () => this.save("png")),
      ),
    );
  }

  updateControls() {
    const { state } = this;
    for (const tab of this.tabs.children) {
      if (tab.dataset.view === state.view) tab.setAttribute("aria-current", "true");
      else tab.removeAttribute("aria-current");
    }
    for (const chip of this.headButtons.children) {
      const head = Number(chip.dataset.head);
      chip.setAttribute("aria-pressed", String(state.heads.includes(head)));
      chip.title = this.title(state.layer, head);
    }
    document.getElementById("choose-layer").value = String(state.layer);
    for (const name of ["words", "norm", "specials"]) document.getElementById(`choose-${name}`).checked = state[name];
    this.slider.value = String(state.threshold);
    this.threshold.textContent = state.threshold.toFixed(2);
    const pair = document.getElementById("choose-pair");
    if (pair) {
      pair.value = state.pair;
      for (const option of pair.options) option.textContent = inLanguage(...PAIR_TITLES[option.value]);
    }
    document.body.dataset.view = state.view;
    document.body.toggleAttribute("data-picture", HAS_PICTURE.includes(state.view));
  }

  // ------------------------------------------------------------ drawing

  async render() {
    this.updateControls();
    const drawing = (this.drawing = Symbol("drawing"));
    const shown = await VIEW_OF[this.state.view](this);
    if (this.drawing !== drawing) return; // something newer is being drawn
    const focused = document.activeElement?.dataset?.key;
    const home = document.getElementById("names-home");
    replaceChildren(this.view, shown.node);
    if (this.namesSection && !this.namesSection.isConnected) home.append(this.namesSection);
    this.current = shown;
    shown.update?.();
    if (focused) this.view.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    document.body.dataset.ready = toAddress(this.state);
  }

  onScroll() {
    if (this.scrolling) return;
    this.scrolling = requestAnimationFrame(() => {
      this.scrolling = null;
      this.current?.update?.();
    });
  }

  // On paper pictures are SVG: sharp, and whole.
  onPrint(isPrinting) {
    document.getElementById("printed")?.remove();
    if (!isPrinting || !this.current?.svg) return;
    this.view.after(element("div", { id: "printed" }, this.current.svg()));
  }

  // ------------------------------------------------------------ export

  async save(kind) {
    const svg = this.current?.svg?.();
    if (!svg) return;
    const text = new XMLSerializer().serializeToString(svg);
    const name = `attention-${this.state.view}-L${this.state.layer}H${this.state.heads.join("+")}`;
    if (kind === "svg") return download(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
    const [width, height] = ["width", "height"].map((side) => Number(svg.getAttribute(side)));
    const scale = Math.min(2, 16000 / Math.max(width, height));
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = element("canvas", { width: Math.round(scale * width), height: Math.round(scale * height) });
    const context = canvas.getContext("2d");
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return download(await new Promise((done) => canvas.toBlob(done)), `${name}.png`);
  }
}

function readTokens(id) {
  return Array.from(document.querySelectorAll(`#${id} li`), (item) => ({
    text: item.textContent,
    special: item.classList.contains("special"),
    part: Number(item.dataset.text),
    gap: "gap" in item.dataset, // white space before it
  }));
}

function joinWords(pieces, starts) {
  return starts.map((start, word) => {
    const members = pieces.slice(start, starts[word + 1] ?? pieces.length);
    return { ...members[0], text: members.map((piece) => piece.text).join("") };
  });
}

async function floats(id) {
  return new Float32Array((await readBlock(id)).buffer);
}

function download(blob, name) {
  const link = element("a", { download: name, href: URL.createObjectURL(blob) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

new AttentionPage().start();
