// The page's pure modules by themselves; started by tests/test_attention_page.py, which copies them beside this file.

import assert from "node:assert/strict";
import { test } from "node:test";

import { byNorm, differenceMap, distances, meanRests, meanWeights, shownMap, strongest, toWords } from "./parts/maps.js";
import { Blocks, decodeRoot } from "./parts/payload.js";
import { queryScores } from "./parts/scores.js";
import { defaultState, fromAddress, toAddress } from "./parts/state.js";

const TOKENS = [
  { text: "[CLS]", special: true, part: -1 },
  { text: "a", special: false, part: 0 },
  { text: "b", special: false, part: 1 },
];
const MAP = Float32Array.from([0.2, 0.3, 0.5, 0.6, 0.1, 0.3, 0.5, 0.25, 0.25]);
const close = (actual, expected) => {
  assert.equal(actual.length, expected.length);
  Array.from(actual).forEach((value, at) => assert.ok(Math.abs(value - expected[at]) < 1e-6, `${value} is not ${expected[at]}`));
};

test("hidden tokens are left out, rows scaled, and what they had is kept", () => {
  const shown = shownMap(MAP, TOKENS, { specials: false });
  assert.deepEqual([shown.rows, shown.columns, shown.hidden], [[1, 2], [1, 2], [0]]);
  close(shown.weights, [0.25, 0.75, 0.5, 0.5]);
  close(meanRests(shown, []).map(([, share]) => share), [0.55]);
  close(meanRests(shown, [2]).map(([, share]) => share), [0.5]);
  close(shownMap(MAP, TOKENS, { from: 0, to: 1, specials: false }).weights, [0.75]);
});

test("words get the sum of their pieces and give their mean; norms weigh keys", () => {
  close(toWords(MAP, 3, [0, 1]), [0.2, 0.8, 0.55, 0.45]);
  close(byNorm(MAP, [1, 1, 0]), [0.4, 0.6, 0, 6 / 7, 1 / 7, 0, 2 / 3, 1 / 3, 0]);
});

test("the strongest weights, exactly as many as fit, are those of a sort", () => {
  let seed = 1;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  const weights = Float32Array.from({ length: 40 * 40 }, () => random() ** 6);
  const all = Array.from({ length: 40 }, (_, at) => at);
  const shown = { weights, rows: all, columns: all };
  const sorted = [...weights].sort((a, b) => b - a);
  for (const limit of [1, 17, 400, 1600]) {
    const { lines, share, total } = strongest([shown], { limit });
    assert.equal(lines.length, limit);
    close(lines.map((line) => line.weight).reverse(), sorted.slice(0, limit));
    const sum = (values) => values.reduce((one, other) => one + other, 0);
    assert.ok(Math.abs(share - sum(sorted.slice(0, limit)) / sum(sorted)) < 1e-6);
    assert.equal(total, sorted.filter((weight) => weight > 0).length);
  }
  const equal = { weights: new Float32Array(1600).fill(0.025), rows: all, columns: all };
  assert.equal(strongest([equal, equal], { limit: 100 }).lines.length, 100);
  assert.equal(strongest([shown], { tokens: [3], direction: "to" }).lines.every((line) => line.column === 3), true);
});

test("means over tokens and maps, both ways", () => {
  const shown = shownMap(MAP, TOKENS, {});
  close(meanWeights([shown], [0, 1], "from"), [0.4, 0.2, 0.4]);
  close(meanWeights([shown, shown], [2], "to"), [0.5, 0.3, 0.25]);
});

test("distances are within a text; the other one and special tokens apart", () => {
  const found = distances(MAP, TOKENS, 2);
  close(found.offsets, [0, 0, 0.175, 0, 0]);
  close([found.far, found.other, found.special[0][1]], [0, 0.275, 0.55]);
});

test("a difference where both have the tokens", () => {
  const own = shownMap(MAP, TOKENS, {});
  const same = differenceMap(own, own, [0, 1, -1]);
  close(same.weights.filter((weight) => !Number.isNaN(weight)), [0, 0, 0, 0]);
  close([same.moved, same.lost], [0, 0.4]);
  const swapped = differenceMap(own, { ...own, weights: Float32Array.from([0.3, 0.2, 0.5, 0.6, 0.1, 0.3, 0.5, 0.25, 0.25]) }, [0, 1, 2]);
  close([swapped.moved], [0.1 / 3]);
});

test("addresses lead back to what they were made from", () => {
  const sizes = { layers: [0, 3], heads: 4, pieces: 9, words: 5, views: ["grid", "lines", "matrix"] };
  const state = { ...defaultState(9, [0, 3]), view: "matrix", layer: 3, heads: [1, 2], tokens: [4], words: true, specials: false, zoom: true, pair: "ab", threshold: 0.1 };
  assert.deepEqual(fromAddress(toAddress(state), defaultState(9, [0, 3]), sizes), state);
  assert.deepEqual(fromAddress("#L1H9,t9,difference,toString", defaultState(9, [0, 3]), sizes), { ...defaultState(9, [0, 3]) });
  assert.equal(defaultState(65, [0]).view, "text");
});

test("codes are roots; the last blocks are kept", async () => {
  close(decodeRoot(Uint8Array.from([0, 51, 255])), [0, 0.04, 1]);
  const read = [];
  const blocks = new Blocks((id) => (read.push(id), id), 2);
  for (const id of ["a", "b", "a", "c", "a", "b"]) blocks.get(id);
  assert.deepEqual(read, ["a", "b", "c", "b"]);
});

test("scores add up", () => {
  const codes = Int8Array.from([1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 30, 40]); // one head, two tokens, two dimensions, one term
  const rows = queryScores(codes, { heads: 1, n: 2, size: 2, head: 0, query: 1, terms: ["distance"], scaleOf: () => 1 });
  close(rows.map((row) => row.score), [(3 * 5 + 4 * 6) / Math.SQRT2 + 30, (3 * 7 + 4 * 8) / Math.SQRT2 + 40]);
});
