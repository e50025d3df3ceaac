"""The atlas as a page: a grid of heads, and of each head its names with their evidence. All of it is text in the file;
the script shows one head at a time, and draws its distance profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bertworks.files import atomic_write
from bertworks.inspect.atlas_entry import (
    MARKS,
    Content,
    head_entry,
    head_title,
    initial,
    name_class,
    name_title,
    number_text,
)
from bertworks.inspect.atlas_words import MEASURES, NAME_TITLES, REASONS, REPLACEMENTS, THRESHOLDS, title_of
from bertworks.page.html import bilingual, escape, page, table
from bertworks.page.modules import joined_modules, joined_styles

CAVEAT = (
    "A name says what a head attends to, over this text. It does not say what the model decides by: attention is no "
    "explanation, and a head may be named and do nothing of use. What the model loses without a head is measured apart."
)
CAVEAT_ZH = (
    "名称只说明一个头在这些文本中关注什么，并不说明模型据何决策：注意力不是解释，有名称的头也可能毫无用处。"
    "模型失去某个头会损失多少，另行测量。"
)
NO_ABLATION = "Not measured: `--ablate` measures what the model loses without each head."
NO_ABLATION_ZH = "未测量：`--ablate` 可测量模型失去各个头的损失。"
KEYS = (
    ("← ↑ → ↓", "another head", "换一个头"),
    ("n", "the next head with a name, or of the filter", "下一个有名称（或符合筛选）的头"),
    ("i", "names or importance", "名称或重要性"),
    ("Esc", "no filter", "取消筛选"),
    ("?", "this help", "本帮助"),
)


def write_atlas_page(path: Path, content: Content, *, model: str) -> Path:
    """`content`: an atlas as its JSON has it."""
    with atomic_write(path) as file:
        file.write(atlas_page(content, model=model).encode())
    return path


def atlas_page(content: Content, *, model: str) -> str:
    heads = content["heads"]
    n_layers, n_heads = (1 + max(int(head[name]) for head in heads) for name in ("layer", "head"))
    n_named = sum(bool(head["names"]) for head in heads)
    sizes = f"{n_layers} × {n_heads}"
    read = bilingual(
        f"{content['passages']:,} passages of {content['documents']:,} documents, up to {content['max_tokens']} tokens",
        f"{content['documents']:,} 篇文档中的 {content['passages']:,} 段，每段至多 {content['max_tokens']} 个词元",
    )
    named_text = bilingual(f"{n_named} of {len(heads)} heads have a name.", f"{len(heads)} 个头中 {n_named} 个有名称。")
    is_distance = bool((content.get("ablation") or {}).get("distance"))
    body = [
        f'<p class="dim">{escape(model)} · {sizes} · {read}</p><p>{named_text} {_null(content)}</p>',
        f'<p class="caveat">{bilingual(CAVEAT, CAVEAT_ZH)}</p>',
        f'<div id="controls"></div><p id="status" role="status" aria-live="polite"></p>{_legend(content)}',
        f'<div id="atlas" data-layers="{n_layers}" data-heads="{n_heads}" data-distance="{int(is_distance)}">',
        f'<div id="map">{_grid(heads, n_layers, n_heads, is_distance)}{_help()}</div>',
        f'<div id="entries">{"".join(head_entry(head, content.get("ablation")) for head in heads)}</div></div>',
        f"<h2>{bilingual('Named heads', '有名称的头')}</h2>{_named_table(heads)}",
        f"<h2>{bilingual('What cannot be seen', '无法看到的')}</h2>{_unseen(content)}",
        f"<h2>{bilingual('Importance', '重要性')}</h2>{_importance(content)}",
        f"<h2>{bilingual('Thresholds', '阈值')}</h2>{_thresholds(content)}",
        f"<h2>{bilingual('What this was made of', '数据来源')}</h2>{_sources(content)}",
    ]
    style = joined_styles("atlas")
    title = (f"Heads of {model}" if model else "Heads of a model", f"{model} 的注意力头" if model else "模型的注意力头")
    return page(title, "\n".join(body), style, joined_modules("atlas"))


# ---------------------------------------------------------------------- all heads


def _verdict(head: Content) -> str:
    return str((head.get("importance") or {}).get("verdict", ""))


# Of a distance, which is never 0, heads are compared with the average one.
LOSS_VERDICTS = {"worse": "worse without it", "better": "better without it"}
DISTANCE_VERDICTS = {"worse": "more than the average head", "better": "less than the average head"}


def _grid(heads: Sequence[Content], n_layers: int, n_heads: int, is_distance: bool) -> str:
    """Links to the entries; of heads that matter, with a mark."""
    by_place = {(head["layer"], head["head"]): head for head in heads}
    header = "".join(f'<th scope="col">H{head}</th>' for head in range(n_heads))
    rows = []
    for layer in range(n_layers):
        cells = "".join(f"<td>{_cell(by_place[layer, head], is_distance)}</td>" for head in range(n_heads))
        rows.append(f'<tr><th scope="row">L{layer}</th>{cells}</tr>')
    return f'<table id="grid"><thead><tr><th></th>{header}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _cell(head: Content, is_distance: bool) -> str:
    names, verdict = head["names"], _verdict(head)
    verdict_texts = DISTANCE_VERDICTS if is_distance else LOSS_VERDICTS
    classes = " ".join(["cell", *([name_class(names[0])] if names else ["unnamed"]), *([verdict] if verdict else [])])
    label = f"{head_title(head)}: {', '.join(names) or 'no name'}{f'; {verdict_texts[verdict]}' if verdict else ''}"
    mark = f"<sup>{MARKS[verdict]}</sup>" if verdict else ""
    initials = escape("".join(map(initial, names[:3]))) or "·"
    attributes = f'class="{classes}" href="#{head_title(head)}" aria-label="{escape(label)}" title="{escape(label)}"'
    return f"<a {attributes}>{initials}{mark}</a>"


def _legend(content: Content) -> str:
    """The names that occur, with their initials and how many heads have them."""
    counts: dict[str, int] = {}
    for head in content["heads"]:
        for name in head["names"]:
            counts[name] = counts.get(name, 0) + 1
    order = [*NAME_TITLES, *sorted(counts.keys() - NAME_TITLES.keys())]
    items = [
        f'<li class="{name_class(name)}" data-name="{escape(name)}">{name_title(name)} ({counts[name]})</li>'
        for name in order
        if name in counts
    ]
    if (content.get("ablation") or {}).get("confidence"):
        worse, better = (
            bilingual("it matters: worse without it", "重要：去掉后变差"),
            bilingual("better without it", "去掉后变好"),
        )
        if content["ablation"]["distance"]:
            worse, better = (
                bilingual("more than the average head", "影响大于平均"),
                bilingual("less than the average head", "影响小于平均"),
            )
        items.append(f'<li class="mark">{MARKS["worse"]} {worse}</li><li class="mark">{MARKS["better"]} {better}</li>')
    return f'<ul id="legend">{"".join(items)}</ul>'


def _null(content: Content) -> str:
    null = content.get("null")
    if not isinstance(null, Mapping) or not null.get("tests"):
        return ""
    return bilingual(
        f"Where decoys were taken for targets, {null['names']} of {null['tests']:,} tests gave a name.",
        f"以诱饵词充当目标时，{null['tests']:,} 次检验中有 {null['names']} 次得出名称。",
    )


def _help() -> str:
    rows = "".join(f"<li><kbd>{key}</kbd> {bilingual(english, chinese)}</li>" for key, english, chinese in KEYS)
    return f'<details id="help"><summary>{bilingual("Keyboard", "键盘")}</summary><ul>{rows}</ul></details>'


# ---------------------------------------------------------------------- tables


def _named_table(heads: Sequence[Content]) -> str:
    header = [
        bilingual("head", "头"),
        bilingual("name", "名称"),
        bilingual("grade", "等级"),
        bilingual("confirmed", "证实"),
        bilingual("evidence", "证据"),
        bilingual("without it", "去掉后"),
    ]
    rows = []
    for head in heads:
        importance = head.get("importance") or {}
        change = f"{importance['change']:+.4f} {MARKS[importance['verdict']]}".strip() if importance else ""
        for name in head["names"]:
            evidence = head["evidence"][name]
            numbers = ", ".join(f"{what} {number_text(value)}" for what, value in evidence["numbers"].items())
            grade = "★" if evidence.get("strong") else ""
            confirmed = {True: "✓", False: "✗", None: ""}[evidence.get("confirmed")]
            link = f'<a href="#{head_title(head)}">{head_title(head)}</a>'
            rows.append((link, f"{initial(name)} {name}", grade, confirmed, numbers, change))
    if not rows:
        return f"<p>{bilingual('No head has a name.', '没有头得到名称。')}</p>"
    signs = bilingual(
        "★ strong: far above the threshold; of most names, more than half of all attention. "
        "✓ confirmed by an intervention, ✗ not.",
        "★ 强：远高于阈值，多数名称指占全部注意力的一半以上。✓ 已由干预实验证实，✗ 未能证实。",
    )
    return f'<div class="wide">{table(header, rows)}</div><p><small>{signs}</small></p>'


def _unseen(content: Content) -> str:
    items = [
        f"<li><b>{escape(name)}</b>: {bilingual(*map(escape, title_of(REASONS, str(reason))))}</li>"
        for name, reason in content["unseen"].items()
    ]
    all_seen = bilingual("Every name could be seen.", "所有名称均可判定。")
    return f"<ul>{''.join(items)}</ul>" if items else f"<p>{all_seen}</p>"


def _importance(content: Content) -> str:
    ablation = content.get("ablation")
    if not ablation:
        return f"<p>{bilingual(NO_ABLATION, NO_ABLATION_ZH)}</p>"
    replacement = title_of(REPLACEMENTS, ablation["replacement"])
    measure = title_of(MEASURES, ablation["measure"])
    extent = ablation["sequences"], ablation["documents"]
    how = bilingual(
        f"Measured by the {escape(measure[0])}; a head's output is replaced by {replacement[0]}. "
        f"{extent[0]} other passages than those the names are of, of {extent[1]} documents.",
        f"以{escape(measure[1])}衡量；头的输出替换为{replacement[1]}。"
        f"{extent[1]} 篇文档中的 {extent[0]} 段，均未用于命名。",
    )
    if "unseen" in ablation:
        return f"<p>{how}</p><p>{bilingual(*map(escape, title_of(REASONS, ablation['unseen'])))}</p>"
    n_heads = len(content["heads"])
    worse, better = ablation["worse"], ablation["better"]
    grey = n_heads - worse - better
    if ablation["distance"]:
        result = bilingual(
            f"{worse} of {n_heads} heads move a text's vector more than the average head does, {better} less.",
            f"{n_heads} 个头中，{worse} 个对文本向量的影响大于平均水平，{better} 个小于平均水平。",
        )
    else:
        result = bilingual(
            f"{worse} of {n_heads} heads matter: the model is worse without them; it is better without {better}; of "
            f"{grey} the interval holds 0.",
            f"{n_heads} 个头中 {worse} 个重要：去掉后模型变差；{better} 个去掉后变好；其余 {grey} 个的区间含 0。",
        )
    joint = bilingual(
        f"All intervals hold together at {ablation['confidence']:.0%} ({ablation['critical']:.2f} standard errors: the "
        "largest of all heads, resampled over documents), so the number of heads needs no further correction.",
        f"全部区间以 {ablation['confidence']:.0%} 的置信度同时成立"
        f"（{ablation['critical']:.2f} 个标准误：对文档重抽样所得各头最大值），头数众多无须另作校正。",
    )
    summary = f"<p>{how}</p><p><b>{result}</b></p><p><small>{joint}</small></p>"
    return f"{summary}{_importance_table(content['heads'], float(ablation['reference']))}{_same_word(ablation)}"


def _importance_table(heads: Sequence[Content], reference: float) -> str:
    """All heads, the largest change first; the script draws the intervals, with a line at what they are compared to."""
    titles = [("head", "头"), ("without it", "去掉后"), ("from", "自"), ("to", "至"), ("I_h", "I_h"), ("names", "名称")]
    header = [bilingual(*title) for title in titles]
    rows = []
    for head in sorted(heads, key=lambda head: -float(head["importance"]["change"])):
        importance = head["importance"]
        numbers = [f"{importance[name]:+.4f}" for name in ("change", "low", "high")]
        gradient = "" if importance.get("gradient") is None else f"{importance['gradient']:.4f}"
        link = f'<a class="{importance["verdict"] or "grey"}" href="#{head_title(head)}">{head_title(head)}</a>'
        rows.append((link, *numbers, gradient, f"{MARKS[importance['verdict']]} {' '.join(head['names'])}".strip()))
    summary = bilingual("Every head, with its interval", "各头及其区间")
    attributes = f'id="intervals" data-reference="{reference:.6f}"'
    return f"<details {attributes} open><summary>{summary}</summary>{table(header, rows)}</details>"


def _same_word(ablation: Content) -> str:
    check = ablation["same_word"]
    title = (
        f"<h3>{bilingual('Words that recur, without the same-word heads', '去掉“同一个词”的头之后，重复出现的词')}</h3>"
    )
    if "unseen" in check:
        return f"{title}<p>{bilingual(*map(escape, title_of(REASONS, check['unseen'])))}</p>"
    names = " ".join(f"L{layer}H{head}" for layer, head in check["heads"])
    header = ["", bilingual("words that recur", "重复出现的词"), bilingual("matched words", "匹配的词")]
    rows = [
        (bilingual("loss of a word", "每词损失"), *(f"{value:.3f}" for value in check["loss"])),
        (f"{bilingual('without', '去掉')} {names}", *(f"{value:+.3f}" for value in check["change"])),
        (bilingual("without other heads", "去掉其他头"), *(f"{value:+.3f}" for value in check["other_change"])),
    ]
    (mean, low, high), (more, more_low, more_high) = check["difference"], check["against_others"]
    comparison = bilingual(
        f"They lose {mean:+.3f} more than matched words ({low:+.3f} … {high:+.3f}), and that is {more:+.3f} more than "
        f"without as many heads that have no name, of the same layers ({more_low:+.3f} … {more_high:+.3f}; "
        f"{check['as_large']} of {check['other_sets']} such sets do as much).",
        f"它们比匹配的词多损失 {mean:+.3f}（{low:+.3f} … {high:+.3f}）；与去掉同层同样多的无名头相比，又多 {more:+.3f}"
        f"（{more_low:+.3f} … {more_high:+.3f}；{check['other_sets']} 组中有 {check['as_large']} 组达到同样程度）。",
    )
    verdict = (
        bilingual("Confirmed: both intervals lie above 0.", "已证实：两个区间均大于 0。")
        if check["confirmed"]
        else bilingual("Not shown: not both intervals lie above 0.", "未证实：并非两个区间都大于 0。")
    )
    extent = bilingual(
        f"{check['pairs']} pairs, {check['types']} words, {check['documents']} documents",
        f"{check['pairs']} 对，{check['types']} 个词，{check['documents']} 篇文档",
    )
    return f'{title}{table(header, rows)}<p>{comparison} <b>{verdict}</b></p><p class="dim">{extent}</p>'


def _thresholds(content: Content) -> str:
    header = [bilingual("threshold", "阈值"), bilingual("value", "值")]
    rows = [
        (f"<code>{escape(name)}</code> {bilingual(*map(escape, title_of(THRESHOLDS, name, '')))}", f"{value:g}")
        for name, value in content["thresholds"].items()
    ]
    text = bilingual(
        "A name needs lower bounds, so many standard errors below the mean over word types and documents.",
        "得名须下界达到阈值：比按词型与文档所得均值低若干个标准误。",
    )
    return f"<p>{text}</p>{table(header, rows)}"


def _sources(content: Content) -> str:
    rows: list[tuple[str, object]] = [
        (bilingual("model, SHA-256", "模型 SHA-256"), content["model"]),
        (bilingual("text, SHA-256", "文本 SHA-256"), content["corpus"]),
        (bilingual("format", "格式"), str(content["format"])),
    ]
    titles = {
        "words": ("words counted", "计数的词"),
        "dropped": ("pairs left out", "略去的句对"),
        "seed": ("seed", "随机种子"),
    }
    rows += [(bilingual(*titles[name]), f"{content[name]:,}") for name in titles if name in content]
    return f'<div class="wide">{table(["", ""], rows)}</div>'
