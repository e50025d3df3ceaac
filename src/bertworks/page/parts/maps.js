// Attention maps as the page shows them: of pieces or words, by weight or norm, with or without special tokens.
//
// A map is a Float32Array of n x n, row by row: row = from, column = to. A token is {text, special, part}; `part` is 0
// for the first text, 1 for the second, -1 for special tokens.

// What a key really adds: its weight times the length of its value. Rows are scaled to sum to 1.
export function byNorm(map, norms) {
  const n = norms.length;
  const result = new Float32Array(n * n);
  for (let row = 0; row < n; row += 1) {
    let sum = 0;
    for (let column = 0; column < n; column += 1) sum += map[row * n + column] * norms[column];
    if (sum > 0) for (let column = 0; column < n; column += 1) result[row * n + column] = (map[row * n + column] * norms[column]) / sum;
  }
  return result;
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

// The part of a map that is shown: {weights, rows, columns, hidden, rests}. `rows` and `columns` say which tokens;
// `from`, `to`: of one text only, 0, 1 or null for both; special tokens belong to both. Without special tokens, rows are
// scaled to sum to 1 over the others, and `rests` has what each row had on each of those in `hidden`.
export function shownMap(map, tokens, { starts = null, norms = null, specials = true, from = null, to = null }) {
  if (norms) map = byNorm(map, norms);
  if (starts) map = toWords(map, Math.round(Math.sqrt(map.length)), starts);
  const n = tokens.length;
  const isShown = (at, part) => (tokens[at].special ? specials : part === null || tokens[at].part === part);
  const all = Array.from({ length: n }, (_, at) => at);
  const [rows, columns] = [from, to].map((part) => all.filter((at) => isShown(at, part)));
  const hidden = specials ? [] : all.filter((at) => tokens[at].special);
  const weights = new Float32Array(rows.length * columns.length);
  const rests = new Float32Array(rows.length * hidden.length);
  rows.forEach((token, row) => {
    const start = token * n;
    let scale = 1;
    if (hidden.length) {
      let rest = 0;
      let sum = 0;
      for (let at = 0; at < n; at += 1) sum += map[start + at];
      hidden.forEach((at, number) => {
        rests[row * hidden.length + number] = sum > 0 ? map[start + at] / sum : 0;
        rest += map[start + at];
      });
      scale = sum > rest ? 1 / (sum - rest) : 0;
    }
    for (let column = 0; column < columns.length; column += 1) weights[row * columns.length + column] = map[start + columns[column]] * scale;
  });
  return { weights, rows, columns, hidden, rests };
}

// Where some tokens are in a list of them; all places if there are none.
function placesOf(list, tokens) {
  return list.flatMap((token, at) => (!tokens.length || tokens.includes(token) ? [at] : []));
}

// What rests on each hidden token, on average over some rows (of tokens), all if there are none: [[token, share], ...]
export function meanRests(shown, tokens) {
  const { rows, hidden, rests } = shown;
  const chosen = placesOf(rows, tokens);
  if (!chosen.length) return [];
  return hidden.map((token, number) => [token, chosen.reduce((sum, row) => sum + rests[row * hidden.length + number], 0) / chosen.length]);
}

// The mean over maps and chosen tokens of what goes to each token (from: chosen rows), or comes from each (to: chosen
// columns). No token chosen: all.
export function meanWeights(maps, tokens, direction) {
  const { rows, columns } = maps[0];
  const isFrom = direction === "from";
  const chosen = placesOf(isFrom ? rows : columns, tokens);
  const result = new Float32Array(isFrom ? columns.length : rows.length);
  for (const { weights } of maps) {
    for (const other of chosen) {
      for (let at = 0; at < result.length; at += 1) result[at] += weights[isFrom ? other * columns.length + at : at * columns.length + other];
    }
  }
  const scale = maps.length * (chosen.length || 1);
  return result.map((sum) => sum / scale);
}

const BUCKETS = 1024;

// The strongest weights of several maps of the same tokens, at most `limit`, at least `threshold`: {lines, share, total}.
// `lines` have the number of the map, row and column; `share` is their part of all weight of the chosen tokens, `total`
// how many reach the threshold. Found by counting, since sorting millions takes seconds.
export function strongest(maps, { tokens = [], direction = "from", threshold = 0, limit = 20000 }) {
  const { rows, columns } = maps[0];
  const [chosenRows, chosenColumns] = direction === "from" ? [placesOf(rows, tokens), placesOf(columns, [])] : [placesOf(rows, []), placesOf(columns, tokens)];
  const places = new Uint32Array(chosenRows.length * chosenColumns.length); // in a map
  let all = 0;
  const candidates = maps.map(({ weights }) => { // places in each map
    let n = 0;
    for (const row of chosenRows) {
      for (const column of chosenColumns) {
        const place = row * columns.length + column;
        const weight = weights[place];
        all += weight;
        if (weight >= threshold && weight > 0) {
          places[n] = place;
          n += 1;
        }
      }
    }
    return places.slice(0, n);
  });
  const total = candidates.reduce((sum, { length }) => sum + length, 0);
  let [low, high, room] = [0, 1.001, limit]; // roots of weights; `room`: for those below `high`
  for (let round = 0; round < 2 && total > limit; round += 1) {
    const counts = new Uint32Array(BUCKETS);
    const width = (high - low) / BUCKETS;
    maps.forEach(({ weights }, map) => {
      for (const place of candidates[map]) {
        const root = Math.sqrt(weights[place]);
        if (root >= low && root < high) counts[Math.min(BUCKETS - 1, Math.floor((root - low) / width))] += 1;
      }
    });
    let bucket = BUCKETS - 1;
    while (bucket > 0 && counts[bucket] <= room) {
      room -= counts[bucket];
      bucket -= 1;
    }
    [low, high] = [low + bucket * width, low + (bucket + 1) * width];
  }
  const lines = [];
  let drawn = 0;
  maps.forEach(({ weights }, map) => {
    for (const place of candidates[map]) {
      const weight = weights[place];
      if (total > limit) {
        const root = Math.sqrt(weight);
        if (root < low || (root < high && room <= 0)) continue;
        if (root < high) room -= 1;
      }
      drawn += weight;
      lines.push({ map, row: Math.floor(place / columns.length), column: place % columns.length, weight });
    }
  });
  lines.sort((a, b) => a.weight - b.weight); // the strongest are drawn last
  return { lines, share: all > 0 ? drawn / all : 0, total };
}

// How far the attention of a text's tokens goes, means over these: to each offset from -reach to reach in the same text,
// farther in it, to the other text, and to each kind of special token.
export function distances(map, tokens, reach) {
  const n = tokens.length;
  const offsets = new Array(2 * reach + 1).fill(0);
  const special = {};
  let [far, other, rows] = [0, 0, 0];
  for (const token of tokens) if (token.special) special[token.text] = 0;
  for (let row = 0; row < n; row += 1) {
    if (tokens[row].special) continue;
    rows += 1;
    for (let column = 0; column < n; column += 1) {
      const weight = map[row * n + column];
      if (tokens[column].special) special[tokens[column].text] += weight;
      else if (tokens[column].part !== tokens[row].part) other += weight;
      else if (Math.abs(column - row) <= reach) offsets[column - row + reach] += weight;
      else far += weight;
    }
  }
  const mean = (sum) => (rows ? sum / rows : 0);
  const kinds = Object.entries(special).map(([text, sum]) => [text, mean(sum)]);
  return { offsets: offsets.map(mean), far: mean(far), other: mean(other), special: kinds };
}

// One map minus another, where both have the tokens: {weights, moved, lost}. `partner[token]`: its number in the other
// map, -1 if there is none; weights of such tokens are NaN. `moved`: the mean over rows of the weight that would have to
// be moved to make one of the other; `lost`: of the weight of such rows, what goes to tokens without a partner.
export function differenceMap(own, other, partner) {
  const placeOf = (list) => new Map(list.map((token, at) => [token, at]));
  const [otherRows, otherColumns] = [placeOf(other.rows), placeOf(other.columns)];
  const weights = new Float32Array(own.weights.length).fill(NaN);
  let [moved, lost, rows] = [0, 0, 0];
  own.rows.forEach((token, row) => {
    const otherRow = otherRows.get(partner[token]);
    if (otherRow === undefined) return;
    rows += 1;
    let [above, below] = [0, 0];
    own.columns.forEach((columnToken, column) => {
      const weight = own.weights[row * own.columns.length + column];
      const otherColumn = otherColumns.get(partner[columnToken]);
      if (otherColumn === undefined) {
        lost += weight;
        return;
      }
      const theirs = other.weights[otherRow * other.columns.length + otherColumn];
      weights[row * own.columns.length + column] = weight - theirs;
      if (weight > theirs) above += weight - theirs;
      else below += theirs - weight;
    });
    moved += Math.max(above, below);
  });
  return { weights, moved: rows ? moved / rows : 0, lost: rows ? lost / rows : 0, rows };
}
