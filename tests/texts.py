"""Small texts and shards for tests."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np

from bertworks.data.corpus import Corpus, ReadOptions
from bertworks.data.prepare import prepare
from bertworks.data.shards import Shards
from bertworks.text.backends import word_piece
from bertworks.text.tokenizer import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SYLLABLES = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz.,!?")
NASTY = [
    "naïve café",
    "e\u0301 NFD cafe\u0301",
    "中国 and 中国人民",
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467 emoji",
    "مرحبا بالعالم",
    "a\u0300\u0301\u0302\u0303\u0304 stacked",
    "tab\there\r\nand\x00nul\x07bell",
    "x" * 200,
    "hello,world!it's",
    "ﬁne ligature ﬃ",
    "İstanbul ẞ ŉ",
    "\ufeffbom \u200b zero",
    "한국어 ภาษาไทย",
    "ＡＢＣ full width",
    "a [MASK] b [SEP] c",
    "¼ ² ℃",
    "3.14 (x-ray) £5 – \"quoted\" ``old'' style",
    "a  b   c \u3000 d",
]


def tiny_tokenizer() -> Tokenizer:
    """Syllables and letters, so that words have several pieces."""
    pieces = [*SPECIAL, *LETTERS, *SYLLABLES, *("##" + piece for piece in [*LETTERS, *SYLLABLES])]
    backend = word_piece({piece: id for id, piece in enumerate(pieces)}, {"do_lower_case": True})
    return Tokenizer.from_json(json.loads(backend.to_str()), {})


def documents(
    count: int, seed: int = 0, sentences: tuple[int, int] = (1, 12), words: tuple[int, int] = (1, 15)
) -> list[str]:
    """Made-up prose; words of one to four syllables."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        lines = []
        for _ in range(rng.randint(*sentences)):
            sentence = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(rng.randint(*words))]
            lines.append(" ".join(sentence).capitalize() + rng.choice(".!?"))
        texts.append(" ".join(lines))
    return texts


def make_shards(folder: Path, texts: list[str], tokenizer: Tokenizer | None = None, **options: object) -> Shards:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "text.txt"
    file.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    prepare(Corpus([str(file)], ReadOptions()), tokenizer or tiny_tokenizer(), folder / "shards", workers=1, **options)  # type: ignore[arg-type]
    return Shards(folder / "shards")


def chinese_documents() -> list[str]:
    words = ["经济", "发展", "中国", "人民", "我们", "北京", "大学", "学生", "社会", "主义", "问题", "工作", "企业"]
    rng = np.random.default_rng(0)
    return [
        "".join("".join(rng.choice(words, 8)) + ("的" if rng.random() < 0.5 else "了") + "。" for _ in range(10))
        for _ in range(45)
    ]
