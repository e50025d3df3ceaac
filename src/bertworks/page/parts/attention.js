// The attention page: reads the tokens and the numbers of the document, and draws views of them.

import { barRows, percent } from "./charts.js";
import { bilingual, element, inLanguage, replaceChildren } from "./dom.js";
import { chooseLines, linesSvg, linesView } from "./lines.js";
import { between, byNorm, distances, toWords, without } from "./maps.js";
import { matrixView, paint, paintSigned, tokenLabel } from "./matrix.js";
import { Blocks, decodeRoot, readBlock } from "./payload.js";
import { PAIRS, VIEWS, defaultState, fromAddress, headColour, toAddress } from "./state.js";

const REACH = 10; // of the distance profile
const TITLES = {
  grid: ["All heads", "全部注意力头"],
  lines: ["Lines", "连线"],
  matrix: ["Matrix", "矩阵"],
  text: ["Text", "文本"],
  qk: ["Query and key", "查询与键"],
  distance: ["Distance", "距离"],
  names: ["Names", "命名"],
  flow: ["All heads together", "全部头合并"],
  difference: ["Difference", "差异"],
};
const PAIR_TITLES = { all: ["all", "全部"], aa: ["A → A", "A → A"], ab: ["A → B", "A → B"], ba: ["B → A", "B → A"], bb: ["B → B", "B → B"] };
const TERM_TITLES = { content: ["content", "内容"], key: ["key bias", "键偏置"], distance: ["distance", "距离"], segment: ["segment", "段"] };

class AttentionPage {
  constructor() {
    this.meta = JSON.parse(document.getElementById("meta").textContent);
    this.pieces = Array.from(document.querySelectorAll("#tokens li"), (item) => ({
      text: item.textContent,
      special: item.classList.contains("special"),
      text_number: Number(item.dataset.text),
    }));
    this.words = this.meta.starts.map((start, word) => {
      const members = this.pieces.slice(start, this.meta.starts[word + 1] ?? this.pieces.length);
      return { ...members[0], text: members.map((piece) => piece.text).join("") };
    });
    this.blocks = new Blocks(readBlock, 3);
    this.sizes = { layers: this.meta.layers, heads: this.meta.heads, tokens: this.pieces.length };
    this.state = fromAddress(location.hash, defaultState(this.pieces.length), this.sizes);
    this.view = document.getElementById("view");
    this.status = document.getElementById("status");
  }

  async start() {
    this.norms = new Float32Array((await readBlock("norms")).buffer);
    this.makeControls();
    window.addEventListener("hashchange", () => this.change(fromAddress(location.hash, this.state, this.sizes), false));
    document.addEventListener("keydown", (event) => this.onKey(event));
    document.getElementById("zh")?.addEventListener("change", () => this.render());
    window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((node) => node.setAttribute("open", "")));
    await this.render();
  }

  // ------------------------------------------------------------ maps

  async rawMap(layer, head) {
    const n = this.pieces.length;
    const bytes = await this.blocks.get(`layer-${layer}`);
    return decodeRoot(bytes.subarray(head * n * n, (head + 1) * n * n));
  }

  // As it is shown; `rest`: what goes to special tokens that are hidden.
  async map(layer, head) {
    let map = await this.rawMap(layer, head);
    const n = this.pieces.length;
    if (this.state.norm) map = byNorm(map, this.norms.subarray((layer * this.meta.heads + head) * n).subarray(0, n));
    return this.shown(map);
  }

  shown(map) {
    const n = this.pieces.length;
    let rest = null;
    if (this.state.words) map = toWords(map, n, this.meta.starts);
    if (!this.state.specials) ({ map, rest } = without(map, this.tokens.map((token) => token.special)));
    map = between(map, this.tokens.map((token) => token.text_number), ...PAIRS[this.state.pair]);
    return { map, rest };
  }

  get tokens() {
    return this.state.words ? this.words : this.pieces;
  }

  names(layer, head) {
    return this.meta.names?.[`${layer}-${head}`] ?? [];
  }

  title(layer, head) {
    const names = this.names(layer, head).map((name) => name.name).join(", ");
    return `L${layer}H${head}${names ? `: ${names}` : ""}`;
  }

  // ------------------------------------------------------------ changes

  change(changes, writeAddress = true) {
    const wasWords = this.state.words;
    Object.assign(this.state, changes);
    if (this.state.words !== wasWords) this.state.tokens = this.translated(this.state.tokens, this.state.words);
    if (writeAddress) history.replaceState(null, "", toAddress(this.state));
    return this.render();
  }

  // Selected pieces to words, or words to pieces.
  translated(tokens, toWordNumbers) {
    const { starts } = this.meta;
    const owner = (piece) => starts.findLastIndex((start) => start <= piece);
    if (toWordNumbers) return [...new Set(tokens.map(owner))];
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

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(input|select|textarea)$/i.test(event.target.tagName)) return;
    const { layer, heads, words, norm, specials } = this.state;
    const move = (value, by, size) => (value + by + size) % size;
    const changes = {
      ArrowUp: () => ({ layer: move(layer, -1, this.meta.layers) }),
      ArrowDown: () => ({ layer: move(layer, 1, this.meta.layers) }),
      ArrowLeft: () => ({ heads: [move(heads[0], -1, this.meta.heads)] }),
      ArrowRight: () => ({ heads: [move(heads[0], 1, this.meta.heads)] }),
      w: () => ({ words: !words }),
      n: () => ({ norm: !norm }),
      s: () => ({ specials: !specials }),
      Escape: () => ({ tokens: [] }),
    }[event.key];
    if (changes) {
      event.preventDefault();
      this.change(changes());
    } else if (event.key === "?") document.getElementById("help").toggleAttribute("open");
    else if (/^[1-9]$/.test(event.key) && this.availableViews()[event.key - 1]) this.change({ view: this.availableViews()[event.key - 1] });
  }

  say(english, chinese) {
    this.status.textContent = inLanguage(english, chinese);
  }

  // ------------------------------------------------------------ controls

  availableViews() {
    return VIEWS.filter((view) => view !== "difference" || this.meta.difference);
  }

  makeControls() {
    const choice = (name, options, label) => {
      const select = element("select", { id: `choose-${name}`, "aria-label": label[0] }, ...options.map(([value, title]) => element("option", { value }, title)));
      select.addEventListener("change", () => this.change({ [name]: name === "layer" ? Number(select.value) : select.value }));
      return element("label", {}, bilingual(...label), " ", select);
    };
    const flag = (name, label, key) => {
      const box = element("input", { type: "checkbox", id: `choose-${name}` });
      box.addEventListener("change", () => this.change({ [name]: box.checked }));
      return element("label", { title: key }, box, " ", bilingual(...label));
    };
    const button = (id, label, action) => element("button", { type: "button", id, onclick: action }, bilingual(...label));
    const layers = Array.from({ length: this.meta.layers }, (_, layer) => [layer, `L${layer}`]);
    const hasPair = this.pieces.some((piece) => piece.text_number === 1);
    const slider = element("input", { type: "range", id: "choose-threshold", min: 0, max: 0.5, step: 0.01, "aria-label": "threshold" });
    slider.addEventListener("input", () => this.change({ threshold: Number(slider.value) }));
    this.tabs = element("div", { class: "tabs", role: "tablist" }, ...this.availableViews().map((view) => {
      const tab = element("button", { type: "button", role: "tab", "data-view": view }, bilingual(...TITLES[view]));
      tab.addEventListener("click", () => this.change({ view }));
      return tab;
    }));
    this.headButtons = element("div", { class: "heads", role: "group", "aria-label": "heads" }, ...Array.from({ length: this.meta.heads }, (_, head) => {
      const chip = element("button", { type: "button", class: "head", "data-head": head }, `H${head}`);
      chip.style.setProperty("--colour", headColour(head));
      chip.addEventListener("click", (event) => this.onHead(head, event.shiftKey || event.ctrlKey || event.metaKey));
      return chip;
    }));
    replaceChildren(
      document.getElementById("controls"),
      this.tabs,
      element("div", { class: "row" }, choice("layer", layers, ["layer", "层"]), this.headButtons),
      element("div", { class: "row" },
        flag("words", ["words", "按词"], "w"),
        flag("norm", ["by norm", "按范数"], "n"),
        flag("specials", ["special tokens", "特殊标记"], "s"),
        hasPair ? choice("pair", Object.entries(PAIR_TITLES).map(([value, title]) => [value, title[0]]), ["pairs", "句对"]) : null,
        element("label", { class: "threshold" }, bilingual("at least", "阈值"), " ", slider),
        button("save-svg", ["SVG", "SVG"], () => this.save("svg")),
        button("save-png", ["PNG", "PNG"], () => this.save("png")),
      ),
    );
  }

  onHead(head, isMore) {
    const { heads } = this.state;
    if (!isMore) return this.change({ heads: [head] });
    const others = heads.filter((other) => other !== head);
    const chosen = heads.includes(head) ? others : [...heads, head].sort((a, b) => a - b);
    return this.change({ heads: chosen.length ? chosen : [head] });
  }

  updateControls() {
    const { state } = this;
    for (const tab of this.tabs.children) tab.setAttribute("aria-selected", String(tab.dataset.view === state.view));
    for (const chip of this.headButtons.children) {
      const head = Number(chip.dataset.head);
      chip.setAttribute("aria-pressed", String(state.heads.includes(head)));
      chip.title = this.title(state.layer, head);
    }
    document.getElementById("choose-layer").value = String(state.layer);
    for (const name of ["words", "norm", "specials"]) document.getElementById(`choose-${name}`).checked = state[name];
    document.getElementById("choose-threshold").value = String(state.threshold);
    const pair = document.getElementById("choose-pair");
    if (pair) pair.value = state.pair;
    document.body.dataset.view = state.view;
  }

  // ------------------------------------------------------------ views

  async render() {
    this.updateControls();
    const drawing = (this.drawing = Symbol("drawing"));
    const node = await this[`${this.state.view}View`]();
    if (this.drawing !== drawing) return; // something newer is being drawn
    replaceChildren(this.view, node);
    document.body.dataset.ready = toAddress(this.state);
  }

  async gridView() {
    const side = this.meta.thumbnail;
    const bytes = await readBlock("thumbnails");
    const grid = element("div", { class: "grid", role: "group" });
    grid.style.setProperty("--heads", this.meta.heads);
    for (let layer = 0; layer < this.meta.layers; layer += 1) {
      for (let head = 0; head < this.meta.heads; head += 1) {
        const canvas = element("canvas", {});
        const start = (layer * this.meta.heads + head) * side * side;
        const names = this.names(layer, head);
        paint(canvas, decodeRoot(bytes.subarray(start, start + side * side)), side, headColour(head));
        const isCurrent = layer === this.state.layer && this.state.heads.includes(head);
        const cell = element("button", { type: "button", class: "cell", "aria-pressed": String(isCurrent), "aria-label": this.title(layer, head), title: this.title(layer, head) },
          canvas, element("span", { class: "cell-name" }, names.map((name) => name.initial).join(" ")));
        cell.addEventListener("click", () => this.change({ layer, heads: [head], view: "lines" }));
        grid.append(cell);
      }
    }
    this.say(`${this.meta.layers} layers from above, ${this.meta.heads} heads from the left`, `自上而下 ${this.meta.layers} 层，自左而右 ${this.meta.heads} 个头`);
    return grid;
  }

  async shownMaps() {
    const shown = await Promise.all(this.state.heads.map((head) => this.map(this.state.layer, head)));
    return { maps: shown.map(({ map }) => map), rests: shown.map(({ rest }) => rest) };
  }

  async chosenLines() {
    const { maps, rests } = await this.shownMaps();
    return { ...chooseLines(maps, this.state.heads, this.tokens.length, this.state), maps, rests };
  }

  async linesView() {
    const { lines, share, rests } = await this.chosenLines();
    this.sayLines(lines, share, rests);
    return linesView(this.tokens, lines, this.state, (token, side, isMore) => this.onToken(token, side, isMore));
  }

  sayLines(lines, share, rests) {
    const { tokens, state } = this;
    const title = state.heads.map((head) => this.title(state.layer, head)).join("; ");
    const top = lines.at(-1);
    const example = top ? ` ${tokens[top.from].text} → ${tokens[top.to].text} ${top.weight.toFixed(2)}.` : "";
    const hidden = rests[0] && state.tokens.length ? state.tokens.map((token) => rests[0][token] ?? 0).reduce((sum, rest) => sum + rest, 0) / state.tokens.length : null;
    const rest = hidden === null ? ["", ""] : [` ${percent(hidden)} rests on special tokens.`, `另有 ${percent(hidden)} 落在特殊标记上。`];
    this.say(`${title}.${example} ${percent(share)} of the weight is drawn.${rest[0]}`, `${title}。${example}画出了 ${percent(share)} 的权重。${rest[1]}`);
  }

  async matrixView() {
    const { maps } = await this.shownMaps();
    const frames = maps.map((map, number) => {
      const head = this.state.heads[number];
      const frame = matrixView(this.tokens, (canvas) => paint(canvas, map, this.tokens.length, headColour(head)), (row, column, isClick) => {
        this.sayPair(head, row, column, map[row * this.tokens.length + column]);
        if (isClick) this.change({ tokens: [row], direction: "from" });
      });
      return element("figure", {}, element("figcaption", {}, this.title(this.state.layer, head)), frame);
    });
    this.say("Rows attend to columns.", "行关注列。");
    return element("div", { class: "matrices" }, ...frames);
  }

  sayPair(head, row, column, weight) {
    const pair = `L${this.state.layer}H${head}: ${this.tokens[row].text} → ${this.tokens[column].text} ${weight.toFixed(3)}`;
    this.say(pair, pair);
  }

  async textView() {
    const { maps, rests } = await this.shownMaps();
    const n = this.tokens.length;
    const selected = this.state.tokens;
    const isFrom = this.state.direction === "from";
    const weights = this.tokens.map((_, at) => {
      const others = selected.length ? selected : this.tokens.keys().toArray();
      let sum = 0;
      for (const map of maps) for (const other of others) sum += isFrom ? map[other * n + at] : map[at * n + other];
      return sum / (maps.length * (isFrom && selected.length ? selected.length : isFrom ? n : others.length));
    });
    const largest = Math.max(...weights);
    const paragraph = element("p", { class: "shaded" });
    let textNumber = null;
    this.tokens.forEach((token, at) => {
      if (textNumber !== null && token.text_number !== textNumber) paragraph.append(element("br"));
      textNumber = token.text_number;
      const span = element("button", { type: "button", class: "shade", "aria-pressed": String(selected.includes(at)), title: weights[at].toFixed(4) }, tokenLabel(token));
      span.style.setProperty("--weight", String(largest > 0 ? weights[at] / largest : 0));
      span.style.setProperty("--colour", headColour(this.state.heads[0]));
      span.addEventListener("click", (event) => this.onToken(at, this.state.direction, event.shiftKey || event.ctrlKey || event.metaKey));
      paragraph.append(span, " ");
    });
    const strongestAt = weights.indexOf(largest);
    const title = this.state.heads.map((head) => this.title(this.state.layer, head)).join("; ");
    const chosen = selected.map((token) => this.tokens[token].text).join(" ");
    this.say(
      `${title}. ${chosen || "All tokens"} ${isFrom ? "→" : "←"} ${this.tokens[strongestAt].text} ${largest.toFixed(2)}.${rests[0] ? " Special tokens are left out." : ""}`,
      `${title}。${chosen || "全部标记"} ${isFrom ? "→" : "←"} ${this.tokens[strongestAt].text} ${largest.toFixed(2)}。${rests[0] ? "不含特殊标记。" : ""}`,
    );
    const direction = element("button", { type: "button", id: "direction", onclick: () => this.change({ direction: isFrom ? "to" : "from" }) }, bilingual(isFrom ? "from the selected token" : "to the selected token", isFrom ? "从所选标记出发" : "指向所选标记"));
    return element("div", {}, direction, paragraph);
  }

  async distanceView() {
    const { layer, heads } = this.state;
    const charts = await Promise.all(heads.map(async (head) => {
      const map = (await this.map(layer, head)).map;
      const profile = distances(map, this.tokens.map((token) => token.text_number), REACH);
      const row = (label, value) => ({ label, parts: [{ value, class: "plain", title: value.toFixed(4) }], note: percent(value) });
      const rows = profile.offsets.map((value, at) => row(at - REACH > 0 ? `+${at - REACH}` : String(at - REACH), value));
      rows.push(row(inLanguage("farther", "更远"), profile.far), row(inLanguage("special tokens", "特殊标记"), profile.special));
      const chart = barRows(rows, Math.max(...profile.offsets, profile.far, profile.special));
      chart.style.setProperty("--colour", headColour(head));
      return element("figure", {}, element("figcaption", {}, this.title(layer, head)), chart);
    }));
    this.say("Where the attention of a word goes, by distance: +1 is the next one.", "一个词的注意力按距离的去向：+1 为下一个。");
    return element("div", { class: "matrices" }, ...charts);
  }

  async qkView() {
    const { layer, heads, tokens } = this.state;
    if (!this.meta.qk.includes(layer)) {
      return element("p", {}, bilingual("Queries and keys of this layer are not in the file; --qk-layers adds them.", "文件中没有这一层的查询与键；--qk-layers 可加入。"));
    }
    const head = heads[0];
    const n = this.pieces.length;
    const query = this.state.words ? this.meta.starts[tokens[0] ?? 0] : (tokens[0] ?? 0);
    const size = this.meta.headSize;
    const [bytes, scales] = await Promise.all([this.blocks.get(`qk-${layer}`), this.scales()]);
    const codes = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length);
    const scaleOf = (part) => scales[(layer * this.meta.heads + head) * (2 + this.meta.terms.length) + part];
    const vector = (part, token) => {
      const start = ((part * this.meta.heads + head) * n + token) * size;
      return Array.from(codes.subarray(start, start + size), (code) => code * scaleOf(part));
    };
    const q = vector(0, query);
    const termsStart = 2 * this.meta.heads * n * size;
    const map = await this.rawMap(layer, head);
    const rows = this.pieces.map((piece, key) => {
      const k = vector(1, key);
      const content = q.reduce((sum, value, at) => sum + value * k[at], 0) / Math.sqrt(size);
      const parts = [{ name: "content", value: content }];
      this.meta.terms.forEach((name, number) => {
        const at = termsStart + ((number * this.meta.heads + head) * n + query) * n + key;
        parts.push({ name, value: codes[at] * scaleOf(2 + number) });
      });
      return { key, piece, parts, score: parts.reduce((sum, part) => sum + part.value, 0), weight: map[query * n + key], products: q.map((value, at) => value * k[at]) };
    });
    const largest = Math.max(...rows.flatMap((row) => row.parts.map((part) => Math.abs(part.value))));
    const sorted = rows.toSorted((a, b) => b.weight - a.weight);
    const chart = barRows(sorted.map((row) => ({
      label: tokenLabel(row.piece),
      parts: row.parts.map((part) => ({ value: part.value, class: `term-${part.name}`, title: `${inLanguage(...TERM_TITLES[part.name])} ${part.value.toFixed(2)}` })),
      note: `${row.score.toFixed(2)} → ${percent(row.weight)}`,
    })), largest);
    const legend = element("p", { class: "keys" }, ...["content", ...this.meta.terms].map((name) => element("span", { class: `term-${name}` }, bilingual(...TERM_TITLES[name]))));
    const strip = element("div", { class: "products", "aria-hidden": "true" });
    const best = sorted[0];
    const greatest = Math.max(...best.products.map(Math.abs)) || 1;
    for (const product of best.products) {
      const bar = element("span", { class: product < 0 ? "product negative" : "product", title: product.toFixed(3) });
      bar.style.setProperty("--weight", String(Math.abs(product) / greatest));
      strip.append(bar);
    }
    const name = this.pieces[query].text;
    this.say(`L${layer}H${head}: the scores of ${name}; the highest is ${best.piece.text}, ${best.score.toFixed(2)}.`, `L${layer}H${head}：${name} 的得分；最高为 ${best.piece.text}，${best.score.toFixed(2)}。`);
    return element("div", {}, legend, chart, element("p", { class: "dim" }, bilingual(`The products of query “${name}” and key “${best.piece.text}”, dimension by dimension:`, `查询“${name}”与键“${best.piece.text}”逐维的乘积：`)), strip);
  }

  async scales() {
    this.kept_scales ??= readBlock("qk-scales").then((bytes) => new Float32Array(bytes.buffer));
    return this.kept_scales;
  }

  async namesView() {
    if (!this.meta.names) {
      return element("p", {}, bilingual("No atlas was given: `bertworks atlas MODEL --corpus FILE --out atlas.json` names heads over a corpus, and `bertworks inspect --atlas` shows its names here.", "未提供图谱：`bertworks atlas MODEL --corpus FILE --out atlas.json` 在语料上为注意力头命名，`bertworks inspect --atlas` 在此显示。"));
    }
    const header = [["head", "头"], ["name", "名称"], ["evidence", "证据"]].map((title) => element("th", {}, bilingual(...title)));
    const rows = Object.entries(this.meta.names).map(([key, names]) => {
      const [layer, head] = key.split("-").map(Number);
      const open = element("button", { type: "button", onclick: () => this.change({ layer, heads: [head], view: "lines" }) }, `L${layer}H${head}`);
      const evidence = names.map((name) => Object.entries(name.numbers).map(([title, value]) => `${title} ${value.toFixed(2)}`).join(", ")).join("; ");
      return element("tr", {}, element("td", {}, open), element("td", {}, names.map((name) => (name.strong ? `${name.name} ★` : name.name)).join(", ")), element("td", {}, evidence));
    });
    this.say("★ strong: more than half of all attention.", "★ 强：超过全部注意力的一半。");
    return element("table", {}, element("thead", {}, element("tr", {}, ...header)), element("tbody", {}, ...rows));
  }

  async flowView() {
    const n = this.pieces.length;
    const bytes = await this.blocks.get(`flow-${this.state.layer}`);
    const kinds = [["mean of the heads", "各头均值"], ["rollout: through all layers so far", "rollout：贯穿至此的各层"]];
    const frames = kinds.map((title, number) => {
      const { map } = this.shown(decodeRoot(bytes.subarray(number * n * n, (number + 1) * n * n)));
      const frame = matrixView(this.tokens, (canvas) => paint(canvas, map, this.tokens.length, headColour(number)), (row, column) => {
        const pair = `${this.tokens[row].text} → ${this.tokens[column].text} ${map[row * this.tokens.length + column].toFixed(3)}`;
        this.say(pair, pair);
      });
      return element("figure", {}, element("figcaption", {}, bilingual(...title)), frame);
    });
    this.say(`L${this.state.layer}. Rollout uses the measured share of the residual, not one half.`, `L${this.state.layer}。rollout 使用实测的残差占比，而非一半。`);
    return element("div", { class: "matrices" }, ...frames);
  }

  async differenceView() {
    const { layer, heads } = this.state;
    const n = this.pieces.length;
    const bytes = await this.blocks.get(`other-${layer}`);
    const frames = await Promise.all(heads.map(async (head) => {
      const own = (await this.map(layer, head)).map;
      const { map: other } = this.shown(decodeRoot(bytes.subarray(head * n * n, (head + 1) * n * n)));
      const difference = own.map((weight, at) => weight - other[at]);
      const frame = matrixView(this.tokens, (canvas) => paintSigned(canvas, difference, this.tokens.length, "#0072b2", "#d55e00"), (row, column) => {
        this.sayPair(head, row, column, difference[row * this.tokens.length + column]);
      });
      return element("figure", {}, element("figcaption", {}, `L${layer}H${head}`), frame);
    }));
    this.say("Blue: more here; orange: more in the other one.", "蓝：此处更多；橙：另一方更多。");
    return element("div", { class: "matrices" }, ...frames);
  }

  // ------------------------------------------------------------ export

  async save(kind) {
    const { lines } = await this.chosenLines();
    const title = this.state.heads.map((head) => this.title(this.state.layer, head)).join("; ");
    const svg = linesSvg(this.tokens, lines, title);
    const text = new XMLSerializer().serializeToString(svg);
    const name = `attention-L${this.state.layer}H${this.state.heads.join("+")}`;
    if (kind === "svg") return download(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = element("canvas", { width: 2 * svg.getAttribute("width"), height: 2 * svg.getAttribute("height") });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return download(await new Promise((done) => canvas.toBlob(done)), `${name}.png`);
  }
}

function download(blob, name) {
  const link = element("a", { download: name, href: URL.createObjectURL(blob) });
  link.click();
  URL.revokeObjectURL(link.href);
}

new AttentionPage().start();
