"""The page of a word map: its sentences and what was found as text, its points as bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertworks.files import atomic_write
from bertworks.inspect.clusters import MIN_EXCESS, MIN_STABILITY, MIN_VECTORS, Clusters
from bertworks.inspect.word_map import WordMap
from bertworks.page.html import bilingual, escape, page
from bertworks.page.modules import data_block, joined_modules, joined_styles, json_block

CAVEAT = (
    "Groups are of contexts: often senses of the word, but also parts of speech, fixed phrases, or kinds of text. They "
    "are shown only where two halves of the sentences agree on them, and where the silhouette in all dimensions is "
    "larger than that of a single Gaussian cloud of the same covariance.",
    "分组针对上下文：往往对应词义，也可能是词性、固定搭配或文体。只有当句子的两半得出一致的分组，且全部维度上的轮廓系数"
    "高于协方差相同的单个高斯分布时，才显示分组。",
)


def write_word_page(path: Path, word_map: WordMap, *, model: str) -> Path:
    with atomic_write(path) as file:
        file.write(word_page(word_map, model=model).encode(errors="replace"))
    return path


def word_page(word_map: WordMap, *, model: str) -> str:
    planes = [
        layer.points if layer.static is None else np.concatenate([layer.points, layer.static[None]])
        for layer in word_map.maps
    ]
    labels = np.stack([clusters.labels for clusters in word_map.clusters])
    layers = [
        {"variance": layer.variance, "kept": layer.neighbours_kept, "groups": clusters.n}
        for layer, clusters in zip(word_map.maps, word_map.clusters, strict=True)
    ]
    meta = {"layers": layers, "layer": word_map.shown_layer, "star": word_map.static_vectors is not None}
    body = [
        f'<p class="dim">{_facts(word_map, model)}</p>',
        '<div id="controls"></div><div id="view" class="map-and-text"></div>',
        f"<p><small>{bilingual(*CAVEAT)}</small></p>",
        f"<h2>{bilingual('Sentences', '句子')}</h2>{_contexts(word_map)}",
        f"<h2>{bilingual('By layer', '逐层结果')}</h2>{_layers(word_map)}",
        json_block("meta", meta),
        data_block("points", np.stack(planes).astype("<f4").tobytes()),
        data_block("labels", labels.astype(np.uint8).tobytes()),
    ]
    title = (f"One word: {word_map.word}", f"一个词：{word_map.word}")
    return page(title, "\n".join(body), joined_styles("words"), joined_modules("words"))


def _facts(word_map: WordMap, model: str) -> str:
    """How many sentences, which of how many, and what the word is to the tokenizer."""
    n, n_all = len(word_map.contexts), word_map.n_sentences
    facts = [escape(model)] if model else []
    facts.append(
        bilingual(f"{n:,} sentences", f"{n:,} 个句子")
        if n == n_all
        else bilingual(
            f"{n:,} different sentences of {n_all:,} with the word; if there are more than asked for, a random draw",
            f"{n:,} 个不同的句子，来自含该词的 {n_all:,} 个句子；超出所需数目时随机抽取",
        )
    )
    if word_map.n_unread:
        unread = f"{word_map.n_unread:,}"
        facts.append(
            bilingual(
                f"left out: {unread}, too long for the model or with the word inside a longer piece",
                f"略去 {unread} 句：超出模型长度，或该词只是更长词片的一部分",
            )
        )
    if len(word_map.pieces) > 1:
        pieces = escape(" ".join(word_map.pieces))
        n_pieces = len(word_map.pieces)
        facts.append(bilingual(f"{n_pieces} pieces ({pieces}), averaged", f"{n_pieces} 个词片（{pieces}），取平均"))
    if word_map.is_unknown:
        facts.append(bilingual("the tokenizer does not know the word", "分词器不认识该词"))
    if word_map.static_vectors is None:
        facts.append(bilingual("its embedding has another size: not shown", "嵌入的维数不同，不显示"))
    return " · ".join(facts)


def _contexts(word_map: WordMap) -> str:
    items = []
    for text, (start, end) in zip(word_map.contexts, word_map.spans, strict=True):
        marked = f"{escape(text[:start])}<mark>{escape(text[start:end])}</mark>{escape(text[end:])}"
        items.append(f'<li dir="auto">{marked}</li>')
    return f'<ol id="contexts" tabindex="0">{"".join(items)}</ol>'


def _layers(word_map: WordMap) -> str:
    header = [bilingual("layer", "层"), bilingual("groups", "分组"), bilingual("variance shown", "所示方差")]
    rows = []
    for number, (layer, clusters, names) in enumerate(
        zip(word_map.maps, word_map.clusters, word_map.group_words, strict=True)
    ):
        title = str(number) if number else bilingual("embeddings", "嵌入")
        items = "".join(
            f'<li class="group-words">{size:,}: {escape(", ".join(words)) or "–"}</li>'
            for size, words in zip(clusters.sizes, names, strict=True)
        )
        groups = f"<ul>{items}</ul>" if clusters.n > 1 else ""
        verdict = bilingual(*_verdict(clusters, is_embedding=number == 0))
        rows.append(
            f'<tr data-layer="{number}"><td>{title}</td><td><span class="verdict">{verdict}</span>{groups}</td>'
            f'<td class="number">{layer.variance:.0%}</td></tr>'
        )
    head = "".join(f"<th>{cell}</th>" for cell in header)
    return f'<div id="layers"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _verdict(clusters: Clusters, *, is_embedding: bool) -> tuple[str, str]:
    if is_embedding:
        return (
            "Here the points differ only by the word's position in its sentence; no groups are looked for.",
            "此处各点只因词在句中的位置而不同，不寻找分组。",
        )
    division = clusters.division
    if division is None:
        return (
            f"One group: fewer than {MIN_VECTORS} sentences are too few to look for more.",
            f"一组：句子少于 {MIN_VECTORS} 个，不足以寻找更多分组。",
        )
    value, stability = f"{division.silhouette:.2f}", f"{division.stability:.2f}"
    if clusters.n > 1:
        return (
            f"{clusters.n} groups: silhouette {value}, of a single cloud at most {division.null:.2f}; two halves agree "
            f"to {stability}.",
            f"{clusters.n} 组：轮廓系数 {value}，单个高斯分布最多 {division.null:.2f}；两半的一致度为 {stability}。",
        )
    if division.null is None:
        return (
            f"One group: the best division, into {division.k}, is not stable (two halves agree to {stability}, "
            f"{MIN_STABILITY} is wanted).",
            f"一组：最好的划分（{division.k} 组）不稳定（两半的一致度为 {stability}，至少需要 {MIN_STABILITY}）。",
        )
    return (
        f"One group: a division into {division.k} has a silhouette of {value}, a single cloud {division.null:.2f}; "
        f"{MIN_EXCESS} more are wanted.",
        f"一组：分为 {division.k} 组的轮廓系数为 {value}，单个高斯分布为 {division.null:.2f}；"
        f"至少需高出 {MIN_EXCESS}。",
    )
