// The views of the attention page: each gets the page and returns {node, update, svg}: what is shown, what to do when the
// window scrolls, and the picture for papers and print.

import { barRows, percent } from "./charts.js";
import { bilingual, element, inLanguage } from "./dom.js";
import { HeadGrid, nameLegend } from "./grid.js";
import { linesSvg, linesView } from "./lines.js";
import { differenceMap, distances, meanRests, meanWeights, strongest } from "./maps.js";
import { matricesSvg, matrixView, paint } from "./matrix.js";
import { decodeRoot } from "./payload.js";
import { scoresView } from "./scores.js";
import { shadedText } from "./shaded.js";
import { headColour } from "./state.js";

const MAX_LINES = 20000;
const REACH = 10; // of the distance profile

async function gridView(page) {
  page.grid ??= new HeadGrid(page, await page.thumbnails());
  const { layer, heads } = page.state;
  page.grid.show(layer, heads);
  const parts = [page.grid.node];
  if (page.meta.names) parts.unshift(nameLegend(page));
  const title = page.title(layer, heads[0]);
  page.say(`${title}. Layers run down, heads to the right; Enter opens a head.`, `${title}。层自上而下，头自左而右；按 Enter 打开一个头。`);
  return { node: element("div", {}, ...parts) };
}

// ------------------------------------------------------------ one layer

async function shownMaps(page) {
  return Promise.all(page.state.heads.map((head) => page.shown(page.state.layer, head)));
}

function headTitles(page) {
  const { layer, heads } = page.state;
  const names = heads.map((head) => page.title(layer, head));
  return names.length > 4 ? `${names.slice(0, 4).join("; ")} …` : names.join("; ");
}

// What a picture leaves out: weight on hidden special tokens, and outside of the chosen pair of texts.
function leftOut(page, maps) {
  const { tokens, direction, pair } = page.state;
  const chosen = direction === "from" ? tokens : [];
  const sums = new Map();
  for (const shown of maps) {
    for (const [token, share] of meanRests(shown, chosen)) {
      const { text } = page.tokens[token];
      sums.set(text, (sums.get(text) ?? 0) + share / maps.length);
    }
  }
  const parts = ["", ""];
  if (sums.size) {
    const rests = [...sums].map(([text, share]) => `${percent(share)} ${inLanguage("on", "在")} ${text}`).join(inLanguage(", ", "，"));
    parts[0] += ` Not shown: ${rests}.`;
    parts[1] += `未显示：${rests}。`;
  }
  if (pair !== "all") {
    const share = maps.reduce((sum, { weights, rows }) => sum + weights.reduce((all, weight) => all + weight, 0) / (rows.length || 1), 0) / maps.length;
    const [from, to] = [...pair.toUpperCase()];
    parts[0] += ` ${percent(share)} of what ${from}${page.state.specials ? " and special tokens attend" : " attends"} to is ${to}${page.state.specials ? " or special" : ""}.`;
    parts[1] += `${from}${page.state.specials ? " 和特殊词元" : ""} 的注意力有 ${percent(share)} 落在 ${to}${page.state.specials ? "或特殊词元" : ""} 上。`;
  }
  return parts;
}

async function linesOfHeads(page) {
  const { state, tokens } = page;
  const maps = await shownMaps(page);
  const { lines, share, total } = strongest(maps, { ...state, limit: MAX_LINES });
  const { rows, columns } = maps[0];
  const picture = { tokens, rows, columns, lines, heads: state.heads, layer: state.layer };
  const sums = state.tokens.length ? meanWeights(maps, state.tokens, state.direction) : null;
  const top = lines.at(-1);
  const example = top ? `${tokens[rows[top.row]].text} → ${tokens[columns[top.column]].text} ${top.weight.toFixed(2)}` : "–";
  const cut = total > MAX_LINES ? [` The strongest ${MAX_LINES} of ${total} lines.`, `最强的 ${MAX_LINES} 条，共 ${total} 条。`] : ["", ""];
  const [english, chinese] = leftOut(page, maps);
  page.say(
    `${headTitles(page)}. ${example}. ${percent(share)} of the weight is drawn.${cut[0]}${english}`,
    `${headTitles(page)}。${example}。画出了 ${percent(share)} 的权重。${cut[1]}${chinese}`,
  );
  const onToken = (token, side, isMore) => page.onToken(token, side, isMore);
  return { ...linesView({ ...picture, sums, state, onToken }), svg: () => linesSvg(picture) };
}

// Several maps side by side; figures: [{title, shown, colour, weights}].
function matrices(page, figures, onPair) {
  const { state, tokens } = page;
  const drawn = figures.map(({ title, shown, colour, weights, key, note }) => {
    const canvas = element("canvas", {});
    paint(canvas, weights ?? shown.weights, shown.columns.length, colour);
    const view = matrixView({
      tokens, rows: shown.rows, columns: shown.columns, canvas, state, key,
      onToken: (token, side, isMore) => page.onToken(token, side, isMore),
      onPair: (row, column) => onPair(title, shown, weights ?? shown.weights, row, column),
    });
    const caption = element("figcaption", {}, title, note ? element("small", {}, ` ${note}`) : null);
    return { ...view, figure: element("figure", {}, caption, view.node), title, rows: shown.rows, columns: shown.columns, canvas };
  });
  const isLong = tokens.length > 54;
  const zoom = isLong ? element("button", { type: "button", "data-key": "zoom", "aria-pressed": String(state.zoom), onclick: () => page.change({ zoom: !state.zoom }) }, bilingual("enlarge, with tokens", "放大并显示词元")) : null;
  return {
    node: element("div", {}, zoom, element("div", { class: "matrices" }, ...drawn.map(({ figure }) => figure))),
    update: () => drawn.forEach((view) => view.update()),
    svg: () => matricesSvg(tokens, drawn),
  };
}

function sayPair(page, title, shown, weights, row, column) {
  const weight = weights[row * shown.columns.length + column];
  const [from, to] = [shown.rows[row], shown.columns[column]].map((token) => page.tokens[token].text);
  const value = Number.isNaN(weight) ? inLanguage("not in both texts", "并非两个文本都有") : weight.toFixed(3);
  page.say(`${title}: ${from} → ${to} ${value}`, `${title}：${from} → ${to} ${value}`);
}

// The strongest partners of the selected tokens, or in the whole map.
function strongestText(page, maps) {
  const { lines } = strongest(maps, { ...page.state, threshold: 0, limit: 3 });
  return lines.reverse().map(({ map, row, column, weight }) => `${page.tokens[maps[map].rows[row]].text} → ${page.tokens[maps[map].columns[column]].text} ${weight.toFixed(2)}`).join(", ");
}

async function matrixOfHeads(page) {
  const { layer, heads } = page.state;
  const maps = await shownMaps(page);
  const figures = maps.map((shown, number) => ({ title: page.title(layer, heads[number]), shown, colour: headColour(heads[number]), key: `matrix${heads[number]}` }));
  const [english, chinese] = leftOut(page, maps);
  const top = strongestText(page, maps);
  page.say(`Rows attend to columns. ${top}.${english}`, `行关注列。${top}。${chinese}`);
  return matrices(page, figures, (...pair) => sayPair(page, ...pair));
}

async function textOfHeads(page) {
  const { state, tokens, meta } = page;
  const maps = await shownMaps(page);
  const isFrom = state.direction === "from";
  const shown = isFrom ? maps[0].columns : maps[0].rows;
  const weights = meanWeights(maps, state.tokens, state.direction);
  const text = shadedText({ tokens, shown, weights, selected: state.tokens, directions: meta.directions, head: state.heads[0], onToken: (at, isMore) => page.onToken(at, state.direction, isMore) });
  let best = 0;
  weights.forEach((weight, at) => { if (weight > weights[best]) best = at; });
  const chosen = state.tokens.map((token) => tokens[token].text).join(" ");
  const strongestToken = shown.length ? `${tokens[shown[best]].text} ${weights[best].toFixed(2)}` : "–";
  const [english, chinese] = leftOut(page, maps);
  const mean = state.heads.length > 1 ? [" (mean of the heads)", "（各头均值）"] : ["", ""];
  page.say(
    `${headTitles(page)}${mean[0]}. ${chosen || "All tokens"} ${isFrom ? "→" : "←"} ${strongestToken}.${english}`,
    `${headTitles(page)}${mean[1]}。${chosen || "全部词元"} ${isFrom ? "→" : "←"} ${strongestToken}。${chinese}`,
  );
  const title = isFrom ? ["shaded: what the selected tokens attend to", "着色：所选词元关注的对象"] : ["shaded: what attends to the selected tokens", "着色：关注所选词元的对象"];
  const direction = element("button", { type: "button", id: "direction", "data-key": "direction", onclick: () => page.change({ direction: isFrom ? "to" : "from" }) }, bilingual(...title), " ⇄");
  return { node: element("div", {}, direction, text) };
}

// ------------------------------------------------------------ distances and names

function profileRows({ offsets, far, other, special }, hasPair) {
  const row = (label, value) => ({ label, parts: [{ value, class: "plain", title: value.toFixed(4) }], note: percent(value) });
  const reach = (offsets.length - 1) / 2;
  const rows = offsets.map((value, at) => row(at > reach ? `+${at - reach}` : at === reach ? inLanguage("itself", "自身") : `−${reach - at}`, value));
  rows.push(row(inLanguage("farther", "更远"), far));
  if (hasPair) rows.push(row(inLanguage("other text", "另一文本"), other));
  return [...rows, ...special.map(([text, value]) => row(text, value))];
}

function profileChart(page, profile, head) {
  const rows = profileRows(profile, page.hasPair);
  const chart = barRows(rows, Math.max(...rows.map(({ parts }) => parts[0].value)));
  chart.style.setProperty("--colour", headColour(head));
  return chart;
}

// Of all tokens, whatever else is switched off.
async function profileOf(page, layer, head) {
  const whole = await page.shown(layer, head, { specials: true, pair: "all" });
  return distances(whole.weights, page.tokens, REACH);
}

async function distanceOfHeads(page) {
  const { layer, heads } = page.state;
  const charts = await Promise.all(heads.map(async (head) => element("figure", {}, element("figcaption", {}, page.title(layer, head)), profileChart(page, await profileOf(page, layer, head), head))));
  page.say("Where the attention of a token goes, by distance: +1 is the next one.", "一个词元的注意力按距离的去向：+1 为下一个。");
  return { node: element("div", { class: "matrices" }, ...charts) };
}

async function namesOfHeads(page) {
  const { layer, heads } = page.state;
  const head = heads[0];
  const found = page.names(layer, head);
  const figure = element("figure", {},
    element("figcaption", {}, page.title(layer, head)),
    ...found.map((name) => evidenceOf(page, name)),
    ...(found[0]?.profile ? [element("p", { class: "dim" }, bilingual("Over the corpus, by distance:", "在语料上按距离：")), corpusProfile(found[0].profile, head)] : []),
    element("p", { class: "dim" }, bilingual("Where its attention goes in this text, by distance:", "在本文本中其注意力按距离的去向：")),
    profileChart(page, await profileOf(page, layer, head), head));
  if (!page.meta.names) {
    page.say("No names: no atlas was given.", "没有名称：未提供图谱。");
    const how = bilingual("No atlas was given: `bertworks atlas MODEL --corpus FILE --out atlas.json` names heads over a corpus, and `bertworks inspect --atlas atlas.json` shows its names here.", "未提供图谱：`bertworks atlas MODEL --corpus FILE --out atlas.json` 在语料上为注意力头命名，`bertworks inspect --atlas atlas.json` 在此显示。");
    return { node: element("div", {}, element("p", {}, how), figure) };
  }
  const unnamed = found.length ? ["", ""] : [" has no name", " 没有名称"];
  page.say(`${page.title(layer, head)}${unnamed[0]}. ★ strong; ✓ confirmed by an intervention.`, `${page.title(layer, head)}${unnamed[1]}。★ 强；✓ 经干预证实。`);
  return { node: element("div", { class: "named" }, figure, page.namesTable()) };
}

function shortNumber(value) {
  if (typeof value !== "number") return String(value);
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(3);
}

function numberList(numbers) {
  return Object.entries(numbers).map(([title, value]) => `${title} ${shortNumber(value)}`).join(", ");
}

// What an atlas holds of a name: conditions with their lower bounds, numbers, and what chance gives.
function evidenceOf(page, { name, strong, confirmed, by, numbers = {}, conditions = [], null: chance = {}, types, documents, notes = [] }) {
  const header = [["", ""], ["measured", "实测"], ["at least (lower bound)", "至少（下界）"], ["needed", "要求"]].map((title) => element("th", {}, bilingual(...title)));
  const rows = conditions.map(({ what, value, lower, needs }) => element("tr", {}, element("td", {}, what), ...[value, lower, needs].map((one) => element("td", { class: "number" }, shortNumber(one)))));
  const lines = [
    [numberList(numbers), numberList(numbers)],
    Object.keys(chance).length ? [`by chance: ${numberList(chance)}`, `随机情形：${numberList(chance)}`] : null,
    types ? [`${types} word types, ${documents} documents`, `${types} 个词型，${documents} 篇文档`] : null,
    by ? [by, `依据：${by}`] : null,
    ...notes.map((note) => [note, note]),
  ].filter((line) => line?.[0]);
  return element("div", { class: "evidence" },
    element("b", {}, bilingual(...page.nameTitle(name)), `${strong ? " ★" : ""}${confirmed ? " ✓" : ""}`),
    rows.length ? element("table", {}, element("thead", {}, element("tr", {}, ...header)), element("tbody", {}, ...rows)) : null,
    ...lines.map((line) => element("div", { class: "dim" }, bilingual(...line))));
}

// How far the attention of a head went over a corpus: by offset, or by another class.
function corpusProfile(profile, head) {
  const entries = Object.entries(profile).filter(([, value]) => typeof value === "number");
  entries.sort(([a], [b]) => (Number.isNaN(Number(a)) ? 99 : Number(a)) - (Number.isNaN(Number(b)) ? 99 : Number(b)));
  const rows = entries.map(([title, value]) => ({ label: Number(title) > 0 ? `+${Number(title)}` : title.replace("-", "−"), parts: [{ value, class: "plain", title: value.toFixed(4) }], note: percent(value) }));
  const chart = barRows(rows, Math.max(...rows.map(({ parts }) => parts[0].value)));
  chart.style.setProperty("--colour", headColour(head));
  return chart;
}

// ------------------------------------------------------------ all heads, and two models or texts

async function flowOfLayer(page) {
  const { layer } = page.state;
  const rollout = decodeRoot(await page.blocks.get(`rollout-${layer}`));
  const kinds = [
    [await page.meanOfHeads(layer), ["mean of all heads", "全部头的均值"]],
    [rollout, ["rollout through all layers so far", "贯穿至此各层的 rollout"]],
  ];
  const figures = kinds.map(([map, title], number) => {
    const shown = page.shownOf(map, null);
    return { title: `L${layer}: ${inLanguage(...title)}`, shown, colour: headColour(number), key: `flow${number}` };
  });
  page.say(
    `L${layer}. A mean over heads hides what each of them does. Rollout takes lengths and the measured share of the residual, not one half.`,
    `L${layer}。对各头取均值会掩盖每个头的作用。rollout 采用长度与实测的残差占比，而非一半。`,
  );
  return matrices(page, figures, (...pair) => sayPair(page, ...pair));
}

// In words and signs, since colour must not be the only sign.
function largestChanges(page, { rows, columns }, weights) {
  const places = Array.from(weights.keys()).filter((at) => Math.abs(weights[at]) > 0.005);
  places.sort((a, b) => Math.abs(weights[b]) - Math.abs(weights[a]));
  return places.slice(0, 4).map((at) => {
    const [from, to] = [rows[Math.floor(at / columns.length)], columns[at % columns.length]].map((token) => page.tokens[token].text);
    return `${from} → ${to} ${weights[at] > 0 ? "+" : "−"}${Math.abs(weights[at]).toFixed(2)}`;
  }).join(", ");
}

async function differenceOfHeads(page) {
  const { layer, heads, words } = page.state;
  const { other } = page.meta;
  const partner = words ? other.words : other.pieces;
  const shared = partner.filter((at) => at >= 0).length;
  const figures = await Promise.all(heads.map(async (head) => {
    const [own, theirs] = [await page.shown(layer, head), await page.shownOther(layer, head)];
    const { weights, moved, lost } = differenceMap(own, theirs, partner);
    const note = inLanguage(`${percent(moved)} moved`, `变动 ${percent(moved)}`) + (lost > 0.0005 ? inLanguage(`, ${percent(lost)} on tokens without a partner`, `，${percent(lost)} 落在无对应的词元上`) : "");
    return { title: page.title(layer, head), note: `${note}; ${largestChanges(page, own, weights)}`, shown: own, weights, colour: headColour(0), key: `difference${head}` };
  }));
  const name = document.getElementById("other-title")?.textContent ?? "";
  const compared = shared < partner.length
    ? [` ${shared} of ${partner.length} tokens are in both; grey cannot be compared.`, `共有 ${shared}/${partner.length} 个词元；灰色无法比较。`]
    : ["", ""];
  page.say(`Blue: more here; orange: more in the other one, ${name}.${compared[0]}`, `蓝：此处更多；橙：另一方（${name}）更多。${compared[1]}`);
  return matrices(page, figures, (...pair) => sayPair(page, ...pair));
}

export const VIEW_OF = {
  grid: gridView,
  lines: linesOfHeads,
  matrix: matrixOfHeads,
  text: textOfHeads,
  qk: scoresView,
  distance: distanceOfHeads,
  names: namesOfHeads,
  flow: flowOfLayer,
  difference: differenceOfHeads,
};
