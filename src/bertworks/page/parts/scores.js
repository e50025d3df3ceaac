// Query and key: what the score of a query for each key is made of.

import { barRows, percent } from "./charts.js";
import { bilingual, element, inLanguage, replaceChildren } from "./dom.js";
import { shadedText } from "./shaded.js";
import { tokenLabel } from "./strip.js";

const MAX_KEYS = 40; // the strongest, of long texts
const TERM_TITLES = {
  content: ["query · key", "查询 · 键"],
  key: ["key bias", "键偏置"],
  distance: ["distance", "距离"],
  segment: ["segment", "段"],
};

export function termTitle(name) {
  return TERM_TITLES[name] ?? [name, name];
}

// The scores of one query: [{key, parts: [{name, value}], score, products}]. `codes` are signed bytes: queries, keys,
// then terms, (heads, n, ...) each; `scaleOf(part)` is what one step stands for.
export function queryScores(codes, { heads, n, size, head, query, terms, scaleOf }) {
  const vector = (part, token) => {
    const start = ((part * heads + head) * n + token) * size;
    return Array.from(codes.subarray(start, start + size), (code) => code * scaleOf(part));
  };
  const q = vector(0, query);
  const termsStart = 2 * heads * n * size;
  return Array.from({ length: n }, (_, key) => {
    const products = vector(1, key).map((value, at) => (value * q[at]) / Math.sqrt(size));
    const parts = [{ name: "content", value: products.reduce((sum, product) => sum + product, 0) }];
    terms.forEach((name, number) => {
      parts.push({ name, value: codes[termsStart + ((number * heads + head) * n + query) * n + key] * scaleOf(2 + number) });
    });
    return { key, parts, products, score: parts.reduce((sum, part) => sum + part.value, 0) };
  });
}

export async function scoresView(page) {
  const { layer, heads, tokens } = page.state;
  const head = heads[0];
  const { meta, pieces } = page;
  if (!meta.isDot) {
    page.say("", "");
    return { node: element("p", {}, bilingual("The scores of this model are no products of queries and keys.", "该模型的得分不是查询与键的乘积。")) };
  }
  if (!meta.qk.includes(layer)) {
    page.say("", "");
    return { node: element("p", {}, bilingual(`Queries and keys of L${layer} are not in this file: above ${meta.maxQk} tokens, \`--layers ${layer}\` takes them in.`, `本文件中没有 L${layer} 的查询与键：超过 ${meta.maxQk} 个词元时，用 \`--layers ${layer}\` 加入。`)) };
  }
  const query = page.state.words ? meta.starts[tokens[0] ?? 0] : (tokens[0] ?? 0);
  const [bytes, scales, map] = await Promise.all([page.blocks.get(`qk-${layer}`), page.scales(), page.rawMap(layer, head)]);
  const scaleOf = (part) => scales[(meta.layers.indexOf(layer) * meta.heads + head) * (2 + meta.terms.length) + part];
  const codes = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length);
  const n = pieces.length;
  const weights = map.subarray(query * n, (query + 1) * n);
  const rows = queryScores(codes, { heads: meta.heads, n, size: meta.headSize, head, query, terms: meta.terms, scaleOf }).sort((a, b) => weights[b.key] - weights[a.key]);
  const text = shadedText({
    tokens: pieces, shown: pieces.map((_, at) => at), weights, selected: [query], directions: meta.directions, head,
    onToken: (at) => page.change({ tokens: [page.state.words ? page.wordOf(at) : at], direction: "from" }),
  });
  const names = ["content", ...meta.terms];
  const legend = element("p", { class: "keys" }, ...names.map((name) => element("span", { class: `term-${name}` }, bilingual(...termTitle(name)))));
  const strip = element("div", {});
  const chart = scoreBars(rows.slice(0, MAX_KEYS), pieces, weights, (row) => replaceChildren(strip, ...productStrip(pieces, query, row)));
  replaceChildren(strip, ...productStrip(pieces, query, rows[0]));
  page.say(
    `L${layer}H${head}: the scores of “${pieces[query].text}”; the highest is ${pieces[rows[0].key].text}, ${rows[0].score.toFixed(1)} → ${percent(weights[rows[0].key])}.`,
    `L${layer}H${head}：“${pieces[query].text}”的得分；最高为 ${pieces[rows[0].key].text}，${rows[0].score.toFixed(1)} → ${percent(weights[rows[0].key])}。`,
  );
  const positions = meta.terms.length
    ? bilingual("Positions and segments enter the scores: the bars below each other add up to the score.", "位置与段进入得分：上下各条之和即为得分。")
    : bilingual("In this family positions and segments enter by the embeddings: the score is one product.", "该系列模型的位置与段经嵌入进入：得分即一个乘积。");
  const caption = bilingual("Scores are of pieces, before the softmax, from bytes: ± 1 % of the largest. Hatched: negative.", "得分按词片计，取 softmax 之前的值，由字节还原：误差约为最大值的 ±1%。斜纹为负。");
  return { node: element("div", {}, text, element("p", { class: "dim" }, positions, " ", caption), legend, chart, strip) };
}

function scoreBars(rows, pieces, weights, onRow) {
  const largest = Math.max(...rows.flatMap((row) => row.parts.map((part) => Math.abs(part.value))));
  return barRows(rows.map((row) => ({
    label: element("button", { type: "button", class: "plain", "data-key": `key-${row.key}`, onclick: () => onRow(row) }, tokenLabel(pieces[row.key])),
    parts: row.parts.map((part) => ({ value: part.value, class: `term-${part.name}`, title: `${inLanguage(...termTitle(part.name))} ${part.value.toFixed(2)}` })),
    note: `${row.parts.length > 1 ? `${row.parts.map((part) => part.value.toFixed(1)).join(" + ").replaceAll("+ -", "− ")} = ` : ""}${row.score.toFixed(1)} → ${percent(weights[row.key])}`,
  })), largest);
}

// The product of a query and a key, dimension by dimension.
function productStrip(pieces, query, row) {
  const strip = element("div", { class: "products", "aria-hidden": "true" });
  const greatest = Math.max(...row.products.map(Math.abs)) || 1;
  row.products.forEach((product, dimension) => {
    const bar = element("span", { class: product < 0 ? "product negative" : "product", title: `${dimension}: ${product.toFixed(3)}` }, product < 0 ? "−" : "");
    bar.style.setProperty("--weight", String(Math.abs(product) / greatest));
    strip.append(bar);
  });
  const [from, to] = [pieces[query].text, pieces[row.key].text];
  return [element("p", { class: "dim" }, bilingual(`Query “${from}” · key “${to}”, dimension by dimension; − is negative:`, `查询“${from}”· 键“${to}”，逐维；− 为负：`)), strip];
}
