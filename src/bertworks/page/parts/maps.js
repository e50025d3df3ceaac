// Attention maps as the page shows them: of pieces or words, by weight or norm, with or without special tokens.
//
// A map is a Float32Array of n x n, row by row: row = from, column = to.

// What a key really adds: its weight times the length of its value. Rows are scaled to sum to 1.
export function byNorm(map, norms) {
  const n = norms.length;
  const result = new Float32Array(n * n);
  for (let row = 0; row < n; row += 1) {
    for (let column = 0; column < n; column += 1) result[row * n + column] = map[row * n + column] * norms[column];
  }
  return normalised(result, n);
}

// Columns that are not shown are set to 0, and rows scaled to sum to 1 again. `rest`: what each row had there.
export function without(map, hidden) {
  const n = hidden.length;
  const result = map.slice();
  const rest = new Float32Array(n);
  for (let row = 0; row < n; row += 1) {
    for (let column = 0; column < n; column += 1) {
      if (!hidden[column]) continue;
      rest[row] += result[row * n + column];
      result[row * n + column] = 0;
    }
  }
  return { map: normalised(result, n), rest };
}

function normalised(map, n) {
  for (let row = 0; row < n; row += 1) {
    let sum = 0;
    for (let column = 0; column < n; column += 1) sum += map[row * n + column];
    if (sum > 0) for (let column = 0; column < n; column += 1) map[row * n + column] /= sum;
  }
  return map;
}

// Pieces to words: to a word goes the sum of its pieces, from a word the mean. `starts`: the first piece of each word.
export function toWords(map, n, starts) {
  const size = starts.length;
  const owner = new Int32Array(n);
  starts.forEach((start, word) => owner.fill(word, start, starts[word + 1] ?? n));
  const lengths = starts.map((start, word) => (starts[word + 1] ?? n) - start);
  const result = new Float32Array(size * size);
  for (let row = 0; row < n; row += 1) {
    const scale = 1 / lengths[owner[row]];
    for (let column = 0; column < n; column += 1) {
      result[owner[row] * size + owner[column]] += map[row * n + column] * scale;
    }
  }
  return result;
}

// Of one text to one text: pairs outside are 0. `from`, `to`: 0, 1 or null for both; special tokens belong to both.
export function between(map, texts, from, to) {
  if (from === null && to === null) return map;
  const n = texts.length;
  const result = map.slice();
  for (let row = 0; row < n; row += 1) {
    const isFrom = from === null || texts[row] === from || texts[row] < 0;
    for (let column = 0; column < n; column += 1) {
      const isTo = to === null || texts[column] === to || texts[column] < 0;
      if (!isFrom || !isTo) result[row * n + column] = 0;
    }
  }
  return result;
}

// The strongest weights, up to `limit`, at least `threshold`; and the share of all weight that they are.
export function strongest(map, threshold, limit) {
  const chosen = [];
  let all = 0;
  for (let at = 0; at < map.length; at += 1) {
    all += map[at];
    if (map[at] >= threshold && map[at] > 0) chosen.push(at);
  }
  chosen.sort((a, b) => map[b] - map[a] || a - b);
  chosen.length = Math.min(chosen.length, limit);
  const shown = chosen.reduce((sum, at) => sum + map[at], 0);
  return { chosen, share: all > 0 ? shown / all : 0 };
}

// How much goes how far: the mean over rows of what goes to each offset, from -reach to reach; `far` beyond it.
export function distances(map, texts, reach) {
  const n = texts.length;
  const sums = new Float64Array(2 * reach + 1);
  let far = 0;
  let special = 0;
  let rows = 0;
  for (let row = 0; row < n; row += 1) {
    if (texts[row] < 0) continue;
    rows += 1;
    for (let column = 0; column < n; column += 1) {
      const weight = map[row * n + column];
      const offset = column - row;
      if (texts[column] < 0) special += weight;
      else if (Math.abs(offset) <= reach) sums[offset + reach] += weight;
      else far += weight;
    }
  }
  const scale = rows ? 1 / rows : 0;
  return { offsets: Array.from(sums, (sum) => sum * scale), far: far * scale, special: special * scale };
}
