// The atlas page: all of it is text in the document. This shows one head at a time, filters by name, draws profiles.

import { barRows, percent } from "./charts.js";
import { bilingual, element, inLanguage, replaceChildren } from "./dom.js";

class AtlasPage {
  constructor() {
    const { layers, heads } = document.getElementById("atlas").dataset;
    this.sizes = { layers: Number(layers), heads: Number(heads) };
    this.cells = Array.from(document.querySelectorAll("#grid a.cell"));
    this.entries = new Map(Array.from(document.querySelectorAll("article.entry"), (entry) => [entry.id, entry]));
    this.names = Array.from(document.querySelectorAll("#legend li[data-name]"), (item) => item.dataset.name);
    this.hasImportance = [...this.entries.values()].some((entry) => entry.dataset.importance !== undefined);
    this.state = this.fromAddress(location.hash, { head: this.firstNamed(), name: null, importance: false });
    this.status = document.getElementById("status");
  }

  start() {
    this.makeControls();
    document.querySelectorAll("article.entry").forEach(drawProfile);
    drawIntervals(document.querySelector("#intervals table"), Number(document.getElementById("intervals")?.dataset.reference));
    for (const cell of this.cells) {
      cell.addEventListener("click", (event) => {
        event.preventDefault();
        this.change({ head: cell.hash.slice(1) }, true);
      });
    }
    window.addEventListener("hashchange", () => this.change(this.fromAddress(location.hash, this.state)));
    document.addEventListener("keydown", (event) => this.onKey(event));
    document.getElementById("zh")?.addEventListener("change", () => this.render());
    document.body.classList.add("live");
    this.render();
  }

  // ------------------------------------------------------------ state

  firstNamed() {
    const named = [...this.entries.values()].find((entry) => namesOf(entry).length);
    return (named ?? this.entries.values().next().value).id;
  }

  // #L3H4,same,importance; what cannot be is left out. A name that a user made up may hold any sign.
  fromAddress(address, state) {
    const result = { ...state };
    if (!address) return result;
    const parts = address.replace(/^#/, "").split(",").map(decoded);
    result.name = this.names.find((name) => parts.slice(1).includes(name)) ?? null;
    result.importance = this.hasImportance && parts.includes("importance");
    if (this.entries.has(parts[0])) result.head = parts[0];
    return result;
  }

  toAddress() {
    const { head, name, importance } = this.state;
    return `#${[head, ...(name === null ? [] : [encodeURIComponent(name)]), ...(importance ? ["importance"] : [])].join(",")}`;
  }

  change(changes, hasFocus = false) {
    Object.assign(this.state, changes);
    history.replaceState(null, "", this.toAddress());
    this.render();
    if (hasFocus) this.cell.focus();
  }

  get cell() {
    return this.cells.find((cell) => cell.hash.slice(1) === this.state.head);
  }

  isShown(entry) {
    return this.state.name === null ? true : namesOf(entry).includes(this.state.name);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(input|select|textarea)$/i.test(event.target.tagName)) return;
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (move) {
      event.preventDefault();
      this.move(...move);
    } else if (event.key === "n") this.next();
    else if (event.key === "i" && this.hasImportance) this.change({ importance: !this.state.importance });
    else if (event.key === "Escape") this.change({ name: null });
    else if (event.key === "?") document.getElementById("help").toggleAttribute("open");
  }

  move(layers, heads) {
    const [layer, head] = this.state.head.slice(1).split("H").map(Number);
    const wrap = (value, size) => (value + size) % size;
    this.change({ head: `L${wrap(layer + layers, this.sizes.layers)}H${wrap(head + heads, this.sizes.heads)}` }, true);
  }

  // The next head that the filter shows, or that has a name.
  next() {
    const places = [...this.entries.keys()];
    const start = places.indexOf(this.state.head) + 1;
    const order = [...places.slice(start), ...places.slice(0, start)];
    const found = order.find((place) => namesOf(this.entries.get(place)).length && this.isShown(this.entries.get(place)));
    if (found) this.change({ head: found }, true);
  }

  // ------------------------------------------------------------ drawing

  makeControls() {
    // The names of the legend become buttons.
    this.buttons = Array.from(document.querySelectorAll("#legend li[data-name]"), (item) => {
      const button = element("button", { type: "button", class: "chip", "aria-pressed": "false" });
      button.append(...item.childNodes);
      button.addEventListener("click", () => this.change({ name: this.state.name === item.dataset.name ? null : item.dataset.name }));
      item.append(button);
      return { button, name: item.dataset.name };
    });
    if (!this.hasImportance) return;
    this.box = element("input", { type: "checkbox", id: "choose-importance" });
    this.box.addEventListener("change", () => this.change({ importance: this.box.checked }));
    replaceChildren(document.getElementById("controls"), element("label", {}, this.box, " ", bilingual("importance instead of names", "显示重要性而非名称")));
    const largest = Math.max(...[...this.entries.values()].map((entry) => Math.abs(Number(entry.dataset.importance)) || 0));
    for (const cell of this.cells) {
      const entry = this.entries.get(cell.hash.slice(1));
      const share = Math.abs(Number(entry.dataset.importance)) / (largest || 1);
      cell.style.setProperty("--importance", entry.dataset.verdict ? String(0.15 + 0.85 * share) : "0");
    }
  }

  render() {
    const { head, name, importance } = this.state;
    for (const { button, name: own } of this.buttons) button.setAttribute("aria-pressed", String(own === name));
    if (this.box) this.box.checked = importance;
    document.getElementById("grid").classList.toggle("importance", importance);
    for (const cell of this.cells) {
      const isCurrent = cell.hash.slice(1) === head;
      cell.classList.toggle("faded", !this.isShown(this.entries.get(cell.hash.slice(1))));
      cell.tabIndex = isCurrent ? 0 : -1;
      if (isCurrent) cell.setAttribute("aria-current", "true");
      else cell.removeAttribute("aria-current");
    }
    for (const [place, entry] of this.entries) entry.classList.toggle("chosen", place === head);
    this.say(this.entries.get(head));
    document.body.dataset.ready = this.toAddress();
  }

  say(entry) {
    const names = namesOf(entry).join(", ");
    const isDistance = document.getElementById("atlas").dataset.distance === "1";
    const verdicts = isDistance
      ? { worse: ["more than the average head", "影响大于平均"], better: ["less than the average head", "影响小于平均"] }
      : { worse: ["it matters", "重要"], better: ["better without it", "去掉后变好"] };
    const [english, chinese] = verdicts[entry.dataset.verdict] ?? ["", ""];
    const parts = [names || inLanguage("no name", "无名称"), inLanguage(english, chinese)].filter(Boolean);
    const filter = this.state.name === null ? "" : inLanguage(` (${this.count()} heads: ${this.state.name})`, `（${this.state.name}：${this.count()} 个头）`);
    this.status.textContent = `${entry.id}: ${parts.join("; ")}${filter}`;
  }

  count() {
    return [...this.entries.values()].filter((entry) => this.isShown(entry)).length;
  }
}

// The parts of an address are as somebody typed them.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function namesOf(entry) {
  return Array.from(entry.querySelectorAll("section[data-name]"), (section) => section.dataset.name);
}

function drawProfile(entry) {
  const list = entry.querySelector("ol.profile");
  if (!list) return;
  const points = Array.from(list.children, (item) => ({ offset: Number(item.dataset.offset), value: Number(item.dataset.value) }));
  const rows = points.map(({ offset, value }) => ({
    label: offset > 0 ? `+${offset}` : String(offset).replace("-", "−"),
    parts: [{ value, class: "offset", title: percent(value) }],
    note: percent(value),
  }));
  list.replaceWith(barRows(rows, Math.max(...points.map(({ value }) => value))));
}

// A table of numbers gets a column with their intervals, all to one scale; a line stands at what they are compared with.
function drawIntervals(table, reference) {
  if (!table) return;
  const [header, ...rows] = table.rows;
  const numbers = rows.map((row) => [1, 2, 3].map((at) => Number(row.cells[at].textContent)));
  const least = Math.min(reference, ...numbers.flat());
  const range = Math.max(reference, ...numbers.flat()) - least || 1;
  header.cells[0].after(element("th"));
  rows.forEach((row, number) => {
    const [change, low, high] = numbers[number].map((value) => (value - least) / range);
    const track = element("span", { class: "interval-track" }, element("span", { class: "zero" }), element("span", { class: "interval" }), element("span", { class: "middle" }));
    for (const [name, value] of Object.entries({ "--zero": (reference - least) / range, "--low": low, "--high": high, "--middle": change })) track.style.setProperty(name, String(value));
    row.cells[0].after(element("td", { class: row.cells[0].firstElementChild.className }, track));
  });
}

new AtlasPage().start();
