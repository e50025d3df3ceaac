"""The heads of two models side by side, as a page without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertworks.inspect.atlas_entry import initial
from bertworks.inspect.atlas_page import CAVEAT, CAVEAT_ZH
from bertworks.page.html import bilingual, escape, page, table
from bertworks.page.modules import PARTS

if TYPE_CHECKING:
    from bertworks.inspect.compare import Comparison


def comparison_page(comparison: Comparison, *, models: tuple[str, str]) -> str:
    first, second = map(escape, models)
    sizes = " · ".join(
        f"{name} {layers} × {heads}" for name, (layers, heads) in zip((first, second), comparison.sizes, strict=True)
    )
    body = [
        f'<p class="dim">{sizes}</p><p class="caveat">{bilingual(CAVEAT, CAVEAT_ZH)}</p>',
        _counts(comparison, first, second),
    ]
    for title, rows in (
        (("Names kept", "保留的名称"), comparison.kept()),
        (("Names lost", "失去的名称"), comparison.lost()),
        (("Names gained", "新增的名称"), comparison.gained()),
    ):
        items = "".join(
            f"<li>{_heads(match.head)} → {_heads(match.other)}: {escape(initial(name))} {escape(name)}</li>"
            for match, name in rows
        )
        listed = f"<ul>{items}</ul>" if items else f"<p>{bilingual('none', '无')}</p>"
        body.append(f"<h2>{bilingual(*title)} ({len(rows)})</h2>{listed}")
    body.append(f"<h2>{bilingual('Heads that do alike', '行为相近的头')}</h2>{_matches(comparison)}")
    style = (PARTS / "atlas.css").read_text(encoding="utf-8")
    return page(
        (f"Heads of {models[0]} and {models[1]}", f"{models[0]} 与 {models[1]} 的注意力头"), "\n".join(body), style
    )


def _heads(head: tuple[int, int]) -> str:
    return f"L{head[0]}H{head[1]}"


def _counts(comparison: Comparison, first: str, second: str) -> str:
    header = [bilingual("name", "名称"), first, second]
    rows = [
        (f"{initial(name)} {escape(name)}", *("–" if count is None else str(count) for count in both))
        for name, both in comparison.counts().items()
    ]
    dash = bilingual("–: this model cannot show it.", "–：该模型无法显示。")
    return f"{table(header, rows)}<p><small>{dash}</small></p>" if rows else ""


def _matches(comparison: Comparison) -> str:
    if not comparison.has_attention:
        text = bilingual(
            "By their place alone: two atlases do not have the attention itself. With two models and a text, heads "
            "are matched by what they attend to.",
            "仅按位置对应：图谱文件不含注意力本身。给出两个模型与文本，则按所关注的内容匹配。",
        )
        return f"<p>{text}</p>"
    header = [
        bilingual("head", "头"),
        bilingual("counterpart", "对应的头"),
        bilingual("overlap", "重合度"),
        bilingual("of different words", "不同词之间"),
    ]
    rows = [
        (_heads(match.head), _heads(match.other), f"{match.overlap:.3f}", f"{match.chance:.3f}")
        for match in sorted(comparison.matches, key=lambda match: -(match.overlap or 0.0))
    ]
    text = bilingual(
        f"Over {comparison.n_texts} texts; {comparison.n_other_words} were left out: the tokenizers split them into "
        f"other words. {len(rows)} heads are each other's nearest; the others have no counterpart. Overlap: 1 if two "
        "heads attend alike from every word; beside it, that of the rows of different words, which two heads have that "
        "look at the same place from everywhere.",
        f"基于 {comparison.n_texts} 段文本；另有 {comparison.n_other_words} 段因分词所得的词不同而略去。"
        f"{len(rows)} 对头互为最近；其余没有对应。重合度：从每个词出发的注意力完全相同时为 1；"
        "其旁为不同词各行之间的重合度，凡从各处都看向同一位置的两个头皆有之。",
    )
    return f"<p>{text}</p>{table(header, rows)}"
