// The names of heads: in both languages, as a sign and as a colour. Names of a user's own relations are as they are.

import { COLOURS } from "./state.js";

const NAMES = {
  next: ["→", "next word", "下一个词"],
  previous: ["←", "previous word", "上一个词"],
  next2: ["⇉", "next but one", "后面第二个词"],
  previous2: ["⇇", "previous but one", "前面第二个词"],
  same: ["=", "same word", "相同的词"],
  related: ["≈", "related word", "相关的词"],
  across: ["⇄", "same word in the other text", "另一文本中相同的词"],
  pieces: ["#", "pieces of one word", "同一个词的词片"],
  predicts: ["?", "words that predict it", "有预测作用的词"],
  cls: ["C", "rests on [CLS]", "停在 [CLS] 上"],
  sep: ["S", "rests on [SEP]", "停在 [SEP] 上"],
  first: ["1", "rests on the first token", "停在首个词元上"],
};
const KNOWN = Object.keys(NAMES);

export function nameSign(name) {
  return Object.hasOwn(NAMES, name) ? NAMES[name][0] : name.slice(0, 2);
}

export function nameTitle(name) {
  return Object.hasOwn(NAMES, name) ? NAMES[name].slice(1) : [name, name];
}

export function nameColour(name) {
  const at = KNOWN.indexOf(name);
  return COLOURS[at < 0 ? 12 : at];
}
