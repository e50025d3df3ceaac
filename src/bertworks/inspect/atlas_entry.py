"""One head's entry in the page of an atlas: its names with their evidence, where its attention goes, and what the model
loses without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertworks.inspect.atlas_words import (
    CONDITIONS,
    DESCRIPTIONS,
    INITIALS,
    MEASURES,
    NAME_TITLES,
    NOTES,
    SOURCES,
    title_of,
)
from bertworks.inspect.page import visible
from bertworks.page.html import bilingual, escape, table

Content = Mapping[str, Any]
MARKS = {"worse": "▲", "better": "▽", "": ""}


def head_title(head: Content) -> str:
    return f"L{head['layer']}H{head['head']}"


def name_class(name: str) -> str:
    """Of its colour; relations of a user's own have any name."""
    return f"name-{name}" if name in NAME_TITLES else "name-own"


def initial(name: str) -> str:
    return INITIALS.get(name, "•")


def name_title(name: str) -> str:
    meaning = f": {bilingual(*NAME_TITLES[name])}" if name in NAME_TITLES else ""
    return f"<b>{initial(name)}</b> {escape(name)}{meaning}"


def head_entry(head: Content, ablation: Content | None) -> str:
    names = head["names"]
    sections = "".join(_name_section(name, head["evidence"][name]) for name in names)
    if not names:
        no_name = bilingual("No name: nothing here passes its thresholds.", "无名称：未达到任何阈值。")
        sections = f'<p class="dim">{no_name}</p>'
    parts = [
        f"<h3>{head_title(head)}</h3>",
        sections,
        _head_importance(head, ablation),
        _description(head),
        _profile(head),
    ]
    importance = head.get("importance")
    data = f' data-verdict="{importance["verdict"]}" data-importance="{importance["change"]:g}"' if importance else ""
    unnamed = "" if names else " unnamed"
    return f'<article class="entry{unnamed}" id="{head_title(head)}"{data}>{"".join(parts)}</article>'


def _name_section(name: str, evidence: Content) -> str:
    grade = bilingual("strong", "强") if evidence.get("strong") else bilingual("clear", "明显")
    confirmed = {
        True: bilingual("confirmed by an intervention", "已由干预实验证实"),
        False: bilingual("not confirmed by the intervention", "干预实验未能证实"),
        None: "",
    }[evidence.get("confirmed")]
    heading = f'<h4 class="{name_class(name)}">{name_title(name)}</h4>'
    extent = [grade, confirmed]
    if evidence.get("types") is not None:
        types, documents = evidence["types"], evidence["documents"]
        extent.append(bilingual(f"{types:,} words, {documents:,} documents", f"{types:,} 个词，{documents:,} 篇文档"))
    extent += [bilingual(*map(escape, title_of(SOURCES, evidence["by"])))] if evidence.get("by") else []
    extent += [bilingual(*map(escape, title_of(NOTES, note))) for note in evidence.get("notes", ())]
    summary = " · ".join(part for part in extent if part)
    numbers = f"{_numbers(evidence)}{_examples(evidence)}"
    return f'<section data-name="{escape(name)}">{heading}<p class="dim">{summary}</p>{numbers}</section>'


def _numbers(evidence: Content) -> str:
    """Conditions with their lower bounds; then what else was measured, and what it would be without the pattern."""
    conditions, null = evidence.get("conditions", ()), evidence.get("null") or {}
    parts = []
    if conditions:
        header = [
            "",
            bilingual("measured", "测得"),
            bilingual("lower bound", "下界"),
            bilingual("needed", "所需"),
        ]
        rows = [
            (_condition(condition["what"]), *(number_text(condition[key]) for key in ("value", "lower", "needs")))
            for condition in conditions
        ]
        parts.append(table(header, rows))
    shown = {str(condition["what"]) for condition in conditions}
    others = [
        f"{_condition(what)} {number_text(value)}" for what, value in evidence["numbers"].items() if what not in shown
    ]
    parts += [f"<p>{' · '.join(others)}</p>"] if others else []
    if isinstance(null, Mapping) and null:
        without = " · ".join(f"{_condition(what)} {number_text(value)}" for what, value in null.items())
        parts.append(f"<p>{bilingual('Without the pattern:', '无此模式时：')} {without}</p>")
    return "".join(parts)


def _condition(what: object) -> str:
    return bilingual(*map(escape, title_of(CONDITIONS, str(what))))


def number_text(value: object) -> str:
    if not isinstance(value, int | float):
        return escape(value)
    return (
        f"{value:,.0f}"
        if abs(value) >= 100 or float(value).is_integer()
        else f"{value:.3f}"
        if abs(value) < 10
        else f"{value:.1f}"
    )


def _examples(evidence: Content) -> str:
    items = []
    for example in evidence.get("examples", ()):
        query, key = (_context(example[side]) for side in ("query", "key"))
        weight = number_text(example["weight"])
        items.append(f'<li><q dir="auto">{query}</q> → <q dir="auto">{key}</q> <small>{weight}</small></li>')
    return f'<ul class="examples">{"".join(items)}</ul>' if items else ""


def _context(side: Content) -> str:
    before, word, after = (escape(visible_text(str(side[part]))) for part in ("before", "word", "after"))
    return f"{before}<mark>{word}</mark>{after}"


def visible_text(text: str) -> str:
    """As `visible` has it, with the spaces at both ends kept."""
    core = text.strip(" ")
    return f"{' ' if text.startswith(' ') else ''}{visible(core)}{' ' if text.endswith(' ') and core else ''}"


def _description(head: Content) -> str:
    shares = [
        f"<li>{bilingual(*map(escape, title_of(DESCRIPTIONS, what)))} {number_text(value)}</li>"
        for what, value in head["description"].items()
    ]
    words = [bilingual(*map(escape, title_of(DESCRIPTIONS, what))) for what in head.get("descriptions", ())]
    paragraph = f"<p>{' · '.join(words)}</p>" if words else ""
    title = bilingual("Where its attention goes, on average", "注意力的平均去向")
    return f'<h4>{title}</h4>{paragraph}<ul class="shares">{"".join(shares)}</ul>'


def _profile(head: Content) -> str:
    """By offset; the script draws it as bars."""
    profile = head.get("profile")
    if not isinstance(profile, Mapping) or not profile:
        return ""
    points = sorted((int(offset), float(value)) for offset, value in profile.items())
    items = "".join(
        f'<li data-offset="{offset}" data-value="{value:g}">{offset:+d}: {value:.1%}</li>' for offset, value in points
    )
    title = bilingual("By distance, in words", "按距离（词）")
    return f'<h4>{title}</h4><ol class="profile">{items}</ol>'


def _head_importance(head: Content, ablation: Content | None) -> str:
    importance = head.get("importance")
    if not importance or ablation is None:
        return ""
    interval = f"{importance['change']:+.4f} ({importance['low']:+.4f} … {importance['high']:+.4f})"
    measure = bilingual(*map(escape, title_of(MEASURES, ablation["measure"])))
    verdict = _verdict_text(importance["verdict"], bool(ablation["distance"]))
    gradient = "" if importance.get("gradient") is None else f" · I<sub>h</sub> {importance['gradient']:.4f}"
    grey = "" if importance["verdict"] else ' class="dim"'
    title = bilingual("Without this head", "去掉这个头")
    return f"<h4>{title}</h4><p{grey}>{measure} {interval}: {verdict}{gradient}</p>"


def _verdict_text(verdict: str, is_distance: bool) -> str:
    if is_distance:
        return {
            "worse": bilingual("moves vectors more than the average head does", "对向量的影响大于平均水平的头"),
            "better": bilingual("moves vectors less than the average head does", "对向量的影响小于平均水平的头"),
            "": bilingual(
                "as much as the average head, as far as this text tells", "就这些文本而言，与平均水平的头无异"
            ),
        }[verdict]
    return {
        "worse": bilingual("the model is worse without it", "去掉后模型变差"),
        "better": bilingual("the model is better without it", "去掉后模型变好"),
        "": bilingual("not shown to matter: the interval holds 0", "未显示其重要：区间含 0"),
    }[verdict]
