"""The page of a word map: its sentences as text, its points as bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertworks.files import atomic_write
from bertworks.inspect.word_map import WordMap
from bertworks.page.html import bilingual, escape, page
from bertworks.page.modules import PARTS, data_block, joined_modules, json_block


def write_word_page(path: Path, found: WordMap, *, model: str) -> Path:
    with atomic_write(path) as file:
        file.write(word_page(found, model=model).encode())
    return path


def word_page(found: WordMap, *, model: str) -> str:
    points = np.stack([np.concatenate([layer.points, layer.static[None]]) for layer in found.maps])
    labels = np.stack([clusters.labels for clusters in found.clusters])
    layers = [
        {
            "variance": layer.variance,
            "kept": layer.neighbours_kept,
            "groups": clusters.n,
            "silhouette": clusters.silhouette,
            "chance": clusters.null,
        }
        for layer, clusters in zip(found.maps, found.clusters, strict=True)
    ]
    pieces = (
        bilingual(f"{found.n_pieces} pieces, averaged", f"{found.n_pieces} 个词片，取平均")
        if found.n_pieces > 1
        else ""
    )
    body = [
        f'<p class="dim">{escape(model)} · {len(found.contexts)} {bilingual("sentences", "个句子")} {pieces}</p>',
        '<div id="controls"></div><div id="view"></div><p id="status" role="status" aria-live="polite"></p>',
        f"<h2>{bilingual('Sentences', '句子')}</h2>{_contexts(found)}",
        f'<div id="groups">{_groups(found)}</div>',
        json_block("meta", {"layers": layers}),
        data_block("points", points.astype("<f4").tobytes()),
        data_block("labels", labels.astype(np.uint8).tobytes()),
    ]
    style = (PARTS / "words.css").read_text(encoding="utf-8")
    title = (f"One word: {found.word}", f"一个词：{found.word}")
    return page(title, "\n".join(body), style, joined_modules("words"))


def _contexts(found: WordMap) -> str:
    items = []
    for text, start in zip(found.contexts, found.starts, strict=True):
        end = start + len(found.word)
        marked = f"{escape(text[:start])}<mark>{escape(text[start:end])}</mark>{escape(text[end:])}"
        items.append(f'<li dir="auto">{marked}</li>')
    return f'<ol id="contexts">{"".join(items)}</ol>'


def _groups(found: WordMap) -> str:
    return "".join(
        f'<span data-layer="{layer}">{escape(", ".join(words))}</span>'
        for layer, clusters in enumerate(found.clusters)
        if clusters.n > 1
        for words in clusters.words
    )
