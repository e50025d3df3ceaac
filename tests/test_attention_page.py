"""The attention page in a real browser: what is drawn is what numpy has, by mouse and by keyboard, in both languages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertworks
from bertworks.errors import BadConfig, Unsupported
from bertworks.inspect.alignment import piece_partners, word_partners
from bertworks.inspect.atlas_words import NAME_TITLES
from bertworks.inspect.numbers import decode_root, root_code
from bertworks.inspect.page import attention_page, token_texts
from bertworks.inspect.view import AttentionView
from bertworks.page.modules import IMPORT, PARTS, deflated
from bertworks.text.tokenizer import Pieces
from commands import refusal, run
from opened import OpenedPage
from refusals import refused
from test_view import FAMILIES, A, B, bench

VIEWS = ("grid", "lines", "matrix", "text", "qk", "distance", "names", "flow", "difference")
LAYER, HEAD = 1, 2


def evidence(name: str) -> dict[str, Any]:
    """As an atlas has it; of an older one, less."""
    if name == "mine":
        return {"strong": False, "numbers": {"lift": 3.5}}
    query, key = ({"before": "de <b>", "word": word, "after": "go"} for word in ("ba", "ku"))
    return {
        "strong": name == "next",
        "confirmed": True,
        "numbers": {"lift": 7.25, "mass": 0.4},
        "conditions": [{"what": "share", "value": 0.625, "lower": 0.5125, "needs": 0.4}],
        "null": {"offset 2": 0.125},
        "types": 71,
        "documents": 52,
        "notes": ["a note"],
        "examples": [{"query": query, "key": key, "weight": 0.75, "document": 3}],
    }


def write_atlas(path: Path, layers: int = 3, heads: int = 4) -> Path:
    named = {(1, 2): ["next", "same"], (0, 0): ["mine"]}
    rows = [
        {
            "layer": layer,
            "head": head,
            "names": named.get((layer, head), []),
            "profile": {"-1": 0.125, "1": 0.5, "cls": 0.25},
            "evidence": {name: evidence(name) for name in named.get((layer, head), [])},
        }
        for layer in range(layers)
        for head in range(heads)
    ]
    path.write_text(json.dumps({"heads": rows}))
    return path


@pytest.fixture(scope="module")
def view() -> AttentionView:
    return bench().attention(A, B)


@pytest.fixture(scope="module")
def other() -> AttentionView:
    return bench().attention("ba de ku. Go!", "de fi, ku")


@pytest.fixture(scope="module")
def path(view: AttentionView, other: AttentionView, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attention")
    return view.save(folder / "page.html", other=other, atlas=write_atlas(folder / "atlas.json"))


@pytest.fixture(scope="module")
def shared_page(browser: Any, path: Path) -> Iterator[OpenedPage]:
    page = OpenedPage(browser, path)
    yield page
    page.close()


@pytest.fixture
def opened(shared_page: OpenedPage) -> Iterator[OpenedPage]:
    """As it is at first; without complaints at the end of each test."""
    shared_page.go("#L0H0,lines")
    yield shared_page
    shared_page.check()


def alpha(weights: Any) -> Any:
    return np.round(255 * np.sqrt(np.clip(np.abs(weights), 0, 1)))


def percent(value: float) -> str:
    return f"{100 * value:.{0 if value >= 0.0995 else 1}f}%"


def is_drawn(page: OpenedPage, weights: Any, number: int = 0) -> bool:
    return bool(np.abs(page.pixels("canvas.matrix", number)[:, :, 3] - alpha(weights)).max() <= 1)


# ---------------------------------------------------------------------- views


def test_matrices_are_what_numpy_has(opened: OpenedPage, view: AttentionView) -> None:
    weights = decode_root(root_code(view.probabilities))
    opened.go(f"#L{LAYER}H{HEAD},matrix")
    assert is_drawn(opened, weights[LAYER, HEAD])
    assert not is_drawn(opened, weights[LAYER, HEAD + 1]), "another head is another picture"
    opened.go(f"#L{LAYER}H0+3,matrix,words")
    words = replace(view, probabilities=weights).words()
    assert is_drawn(opened, words[LAYER, 0], 0) and is_drawn(opened, words[LAYER, 3], 1)
    opened.go(f"#L{LAYER}H{HEAD},matrix,norm")
    assert is_drawn(opened, replace(view, probabilities=weights).contributions()[LAYER, HEAD])
    opened.go(f"#L{LAYER}H{HEAD},flow")
    assert is_drawn(opened, view.probabilities.mean(1)[LAYER], 0) and is_drawn(opened, view.rollout()[LAYER], 1)


def test_special_tokens_are_hidden_and_what_rests_on_them_is_said(opened: OpenedPage, view: AttentionView) -> None:
    weights = decode_root(root_code(view.probabilities))[LAYER, HEAD]
    ordinary = ~np.array(view.tokens.special)
    opened.go(f"#L{LAYER}H{HEAD},matrix,nospecials")
    kept = weights[ordinary][:, ordinary]
    assert is_drawn(opened, kept / kept.sum(1, keepdims=True))
    rests = weights[ordinary] / weights[ordinary].sum(1, keepdims=True)
    on_cls = rests[:, 0].mean()
    assert view.tokens.pieces[0] == "[CLS]" and f"{percent(on_cls)} on [CLS]" in opened.status
    opened.go(f"#L{LAYER}H{HEAD},lines,nospecials,t1")
    assert f"{percent(rests[0, 0])} on [CLS]" in opened.status
    assert opened.page.locator(".token-row").count() == 2 * ordinary.sum()


def test_of_one_text_to_the_other(opened: OpenedPage, view: AttentionView) -> None:
    weights = decode_root(root_code(view.probabilities))[LAYER, HEAD]
    texts = np.array([-1 if text is None else text for text in view.tokens.texts])
    for pair, start, end in (("aa", 0, 0), ("ab", 0, 1), ("ba", 1, 0), ("bb", 1, 1)):
        opened.go(f"#L{LAYER}H{HEAD},matrix,{pair}")
        assert is_drawn(opened, weights[(texts == start) | (texts < 0)][:, (texts == end) | (texts < 0)])


def test_lines_are_those_above_the_threshold(opened: OpenedPage, view: AttentionView) -> None:
    weights = decode_root(root_code(view.probabilities))[LAYER]
    opened.go(f"#L{LAYER}H0+{HEAD},lines,min0.1")
    assert opened.pixels("canvas.lines")[:, :, 3].any()
    shown = weights[[0, HEAD]]
    share = shown[shown >= 0.1].sum() / shown.sum()
    assert f"{100 * share:.0f}% of the weight is drawn" in opened.status
    opened.go(f"#L{LAYER}H{HEAD},lines,t2+3,min0")
    rows = opened.page.locator(".to .token-row").evaluate_all("(rows) => rows.map((row) => Number(row.title))")
    assert np.allclose(rows, weights[HEAD][2:4].mean(0), atol=6e-4), "several tokens are summed, as a mean"
    opened.go(f"#L{LAYER}H{HEAD},lines,t2,to,min0")
    rows = opened.page.locator(".from .token-row").evaluate_all("(rows) => rows.map((row) => Number(row.title))")
    assert np.allclose(rows, weights[HEAD][:, 2], atol=6e-4)


def test_shaded_text_and_distances(opened: OpenedPage, view: AttentionView) -> None:
    weights = decode_root(root_code(view.probabilities))[LAYER, HEAD]
    opened.go(f"#L{LAYER}H{HEAD},text,t4")
    shades = opened.page.locator(".shade").evaluate_all("(all) => all.map((one) => Number(one.title))")
    assert np.allclose(shades, weights[4], atol=6e-5)
    assert (
        opened.page.locator(".shaded").inner_text().replace("\n", " ").split()
        == "[CLS] ba defi ku. Go! [SEP] de ba, ku [SEP]".split()
    )
    opened.go(f"#L{LAYER}H{HEAD},distance")
    notes = opened.page.locator(".bar-note").all_inner_texts()
    texts = view.tokens.texts
    n = len(texts)
    ordinary = [at for at in range(n) if texts[at] is not None]
    next_ones = sum(weights[at, at + 1] for at in ordinary if at + 1 < n and texts[at + 1] == texts[at]) / len(ordinary)
    assert abs(float(notes[11].rstrip("%")) / 100 - next_ones) < 6e-3
    labels = opened.page.locator(".bar-label").all_inner_texts()
    assert labels[:2] == ["−10", "−9"] and labels[11] == "+1" and labels[-3:] == ["other text", "[CLS]", "[SEP]"]
    separators = [at for at in range(n) if view.tokens.pieces[at] == "[SEP]"]
    assert abs(float(notes[-1].rstrip("%")) / 100 - weights[ordinary][:, separators].sum(1).mean()) < 6e-3


@pytest.mark.parametrize("preset", ["bert-mini", "xlnet-mini"])
def test_scores_are_those_of_the_model(browser: Any, tmp_path: Path, preset: str) -> None:
    """From signed bytes: one hundredth of the largest is lost."""
    seen = bench(preset).attention(A, B)
    page = OpenedPage(browser, seen.save(tmp_path / "page.html"), f"#L{LAYER}H{HEAD},qk,t3")
    keys = page.page.locator("[data-key^=key-]").evaluate_all(
        "(all) => all.map((one) => Number(one.dataset.key.slice(4)))"
    )
    notes = page.page.locator(".bar-note").all_inner_texts()
    assert sorted(keys) == list(range(len(seen.tokens.ids)))
    exact = seen.scores[LAYER, HEAD, 3]
    for key, note in zip(keys, notes, strict=True):
        score = float(re.findall(r"-?[\d.]+(?= →)", note)[0])
        assert abs(score - exact[key]) < 0.06 + 0.03 * np.abs(exact).max()
        assert abs(float(note.split("→ ")[1].rstrip("%")) / 100 - seen.probabilities[LAYER, HEAD, 3, key]) < 0.01
    bars = page.page.locator(".bar-row").first.locator(".bar").count()
    assert bars == (4 if preset == "xlnet-mini" else 1), "positions and segments apart"
    page.close()


def test_the_grid_and_the_names(opened: OpenedPage, view: AttentionView) -> None:
    opened.go(f"#L{LAYER}H{HEAD},grid")
    assert opened.page.locator(".cell").count() == 12
    cell = opened.pixels(".cell canvas", LAYER * 4 + HEAD)
    assert np.array_equal(cell[:, :, 3], root_code(view.probabilities[LAYER, HEAD]))
    assert opened.page.locator(".cell-name").nth(LAYER * 4 + HEAD).inner_text() == "→ ="
    named, unnamed = (cell[cell[:, :, 3] > 200][0, :3] for cell in (cell, opened.pixels(".cell canvas", 5)))
    assert not np.array_equal(named, unnamed), "coloured by name"
    assert all(NAME_TITLES[name][0] in opened.page.inner_text(".legend") for name in ("next", "same"))
    opened.go(f"#L{LAYER}H{HEAD},names")
    text = opened.page.inner_text("#view")
    for shown in (
        "7.250",
        "0.625\t0.512\t0.400",
        "offset 2 0.125",
        "71 word types",
        "de <b> ba go",
        "next ★ ✓",
        "0.75",
    ):
        assert shown in text, shown
    corpus = opened.page.locator("#view .bar-rows").first
    assert corpus.locator(".bar-label").all_inner_texts() == ["−1", "+1", "cls"]
    assert corpus.locator(".bar-note").all_inner_texts() == ["13%", "50%", "25%"]
    assert opened.page.locator("#view mark").all_inner_texts()[:2] == ["ba", "ku"]
    opened.page.click("[data-key=named-0-0]")
    assert opened.address.startswith("#L0H0") and "mine" in opened.status
    opened.go("#L0H0,lines")
    assert opened.page.locator("#names-home #names").count() == 1, "the table went back"


def test_the_difference_of_two_texts(opened: OpenedPage, view: AttentionView, other: AttentionView) -> None:
    """Where both have the tokens; the others are grey."""
    partners = piece_partners(view, other)
    shared = [at for at, partner in enumerate(partners) if partner >= 0]
    assert 0 < len(shared) < len(partners)
    opened.go(f"#L{LAYER}H{HEAD},difference")
    pixels = opened.pixels("canvas.matrix")
    mine, theirs = (decode_root(root_code(one.probabilities))[LAYER, HEAD] for one in (view, other))
    difference = (
        mine[np.ix_(shared, shared)] - theirs[np.ix_([partners[at] for at in shared], [partners[at] for at in shared])]
    )
    assert np.abs(pixels[np.ix_(shared, shared)][:, :, 3] - alpha(difference)).max() <= 1
    assert (pixels[[at for at in range(len(partners)) if at not in shared]][:, :, 3] == 70).all()
    assert f"{len(shared)} of {len(partners)} tokens" in opened.status
    opened.go(f"#L{LAYER}H{HEAD},difference,words,norm,nospecials")
    assert opened.pixels("canvas.matrix")[:, :, 3].any()


# ---------------------------------------------------------------------- by hand


def test_by_keyboard_alone(opened: OpenedPage) -> None:
    page = opened.page
    opened.press("2")
    opened.press("ArrowDown", "ArrowRight", "ArrowRight")
    assert opened.address == "#L1H2,lines"
    opened.press("ArrowUp", "ArrowLeft", "w", "n", "s")
    assert opened.address == "#L0H1,lines,words,norm,nospecials"
    opened.press("w", "n", "s")
    page.locator("#save-png").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    opened.press("Enter")
    assert opened.address == "#L0H1,t1,lines"
    assert page.evaluate("document.activeElement.dataset.key") == "from-1", "the focus stays where it was"
    page.keyboard.press("Tab")
    opened.press("Shift+Enter")
    assert opened.address == "#L0H1,t1+2,lines"
    opened.press("Escape")
    assert opened.address == "#L0H1,lines"
    page.locator("#choose-words").focus()
    opened.press("ArrowRight")
    assert opened.address == "#L0H2,lines", "arrows work on a switch, too"
    page.keyboard.press("?")
    assert page.locator("#help[open]").count() == 1
    opened.press("1")
    page.locator("[data-key=cell-0-2]").focus()
    opened.press("ArrowDown")
    page.wait_for_selector("[data-key=cell-1-2]:focus")
    opened.press("Enter")
    assert opened.address == "#L1H2,lines"
    for number, view in enumerate(VIEWS, start=1):
        opened.press(str(number))
        assert view in opened.address and page.locator("#view > *").count() == 1


def test_by_mouse(opened: OpenedPage, view: AttentionView) -> None:
    page = opened.page
    page.click(".head[data-head='3']")
    page.click(".head[data-head='1']", modifiers=["Shift"])
    assert opened.address == "#L0H1+3,lines"
    page.click(".to [data-key=to-4]")
    page.click(".to [data-key=to-6]", modifiers=["Control"])
    assert opened.address == "#L0H1+3,t4+6,lines,to"
    opened.go("#L1H2,matrix")
    box = page.locator("canvas.matrix").bounding_box()
    n = len(view.tokens.ids)
    page.mouse.move(box["x"] + box["width"] * 2.5 / n, box["y"] + box["height"] * 1.5 / n)
    texts = token_texts(view)
    assert f"{texts[1]} → {texts[2]} {decode_root(root_code(view.probabilities))[1, 2, 1, 2]:.3f}" in opened.status
    page.select_option("#choose-layer", "2")
    page.fill("#choose-threshold", "0.3") if page.locator("#choose-threshold").is_visible() else None
    assert opened.address.startswith("#L2H2")


def test_the_address_keeps_what_is_shown(browser: Any, path: Path) -> None:
    address = "#L2H0+3,t1+4,matrix,to,words,norm,nospecials,ab"
    page = OpenedPage(browser, path, address)
    assert page.page.evaluate("document.body.dataset.ready") == address
    page.go("#L99H7,t99,nothing,constructor,min7,L0H99")
    assert page.page.evaluate("document.body.dataset.ready") == "#L0H0,lines", "what cannot be is left out"
    page.go("#L1H1,min0.25,lines")
    assert page.page.evaluate("document.body.dataset.ready") == "#L1H1,lines,min0.25"
    page.close()


def test_both_languages_light_and_dark(browser: Any, path: Path) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        page = OpenedPage(browser, path, "#L1H2,lines", color_scheme=scheme)
        assert "of the weight is drawn" in page.status and page.page.get_by_text("Lines", exact=True).is_visible()
        page.page.check("#zh", force=True)
        page.page.wait_for_selector("#status:has-text('权重')")
        assert (
            page.page.get_by_text("连线", exact=True).is_visible()
            and not page.page.get_by_text("Lines", exact=True).is_visible()
        )
        assert "下一个词" in page.status
        grounds.add(page.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.close()
    assert len(grounds) == 2


def test_print_is_light_and_drawn_as_lines(browser: Any, path: Path) -> None:
    page = OpenedPage(browser, path, "#L1H2,lines,min0.1", color_scheme="dark")
    page.page.emulate_media(media="print", color_scheme="dark")
    page.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.page.locator("#printed svg line").count() > 3 and page.page.locator("#printed svg").is_visible()
    assert not page.page.locator("#view").is_visible() and not page.page.locator("#controls").is_visible()
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.page.locator("#printed").count() == 0 and page.page.pdf()[:5] == b"%PDF-"
    page.close()


def test_exports_are_what_is_shown(opened: OpenedPage, view: AttentionView) -> None:
    def exported(kind: str) -> bytes:
        with opened.page.expect_download() as download:
            opened.page.click(f"#save-{kind}")
        return Path(download.value.path()).read_bytes()

    opened.go(f"#L{LAYER}H{HEAD},lines")
    assert exported("svg").decode() == view.svg(LAYER, HEAD), "Python writes the same bytes"
    opened.go(f"#L{LAYER}H0+{HEAD},t2+5,lines,to,min0.15")
    assert exported("svg").decode() == view.svg(LAYER, [0, HEAD], token=[2, 5], direction="to", threshold=0.15)
    assert exported("png")[:8] == b"\x89PNG\r\n\x1a\n"
    opened.go(f"#L{LAYER}H0+{HEAD},matrix")
    svg = exported("svg").decode()
    assert svg.count("<image") == 2 and svg.count("<text") == 2 * (1 + 2 * len(view.tokens.ids))
    assert len(exported("png")) > 2000
    opened.go(f"#L{LAYER}H0,text")
    assert not opened.page.locator("#save-svg").is_visible()


# ---------------------------------------------------------------------- safety


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--",
    "]]>",
    "\u2028",
    "\u202eabc",
    "\x00",
    "\ud800",
    "<img src=x onerror=alert(1)>",
]


def hostile_view(view: AttentionView) -> AttentionView:
    """Tokens that are the worst there are, a lone surrogate among them, which tokenizers refuse."""
    n = len(HOSTILE)
    text = "".join(HOSTILE)
    ends = np.cumsum([len(one) for one in HOSTILE]).tolist()
    pieces = Pieces(
        list(range(n)),
        HOSTILE,
        [0] * n,
        list(zip([0, *ends[:-1]], ends, strict=True)),
        [False] * n,
        list(range(n)),
        [0] * n,
    )
    cut = {name: getattr(view, name)[:, :, :n] for name in ("queries", "keys", "norms")}
    maps = {name: getattr(view, name)[:, :, :n, :n] for name in ("probabilities", "scores")}
    return replace(view, texts=(text,), tokens=pieces, mixing=view.mixing[:, :n], model="</script>", **cut, **maps)


def test_hostile_tokens_are_text(browser: Any, tmp_path: Path, view: AttentionView) -> None:
    seen = hostile_view(view)
    path = seen.save(tmp_path / "page.html", other=replace(seen, model="<i>"))
    page = OpenedPage(browser, path)
    for address in VIEWS:
        page.go(f"#L0H0,{address},t0")
        assert page.page.locator("#view *").count() > 2
    texts = page.page.locator("#tokens li").all_inner_texts()
    assert len(texts) == len(HOSTILE) and texts[0] == HOSTILE[0] and texts[-1] == HOSTILE[-1]
    assert page.page.locator("img").count() == 0
    page.close()


def test_trusted_types_hold(opened: OpenedPage) -> None:
    """No script can make HTML of text, not even one that got in."""
    assert "TypeError" in opened.page.evaluate(
        "() => { try { document.body.innerHTML = 'x'; } catch (error) { return String(error); } }"
    )
    opened.page.evaluate("window.violations = []")
    opened.complaints.clear()


def test_inside_of_a_notebook(browser: Any, tmp_path: Path, view: AttentionView) -> None:
    """A frame without an origin: no address, no storage, and nothing of the notebook."""
    frame = view._repr_html_()
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!DOCTYPE html><meta charset='utf-8'><body data-ready>{frame}")
    page = OpenedPage(browser, notebook)
    inside = page.page.frame_locator("iframe")
    inside.locator("body[data-ready]").wait_for(state="attached")
    inside.locator("[data-view=matrix]").click()
    inside.locator("canvas.matrix").wait_for()
    page.close()
    assert repr(view).startswith("<AttentionView: ")


# ---------------------------------------------------------------------- long, right to left, small


def long_view(n: int, layers: int = 1, heads: int = 2, sharpness: float = 0.02) -> AttentionView:
    """As peaked as attention is; with a `sharpness` of 1, nearly uniform noise."""
    rng = np.random.default_rng(0)
    words = [f"w{at}" for at in range(n - 2)]
    text = " ".join(words)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1].tolist()
    offsets = [(0, 0), *((start, start + len(word)) for start, word in zip(starts, words, strict=True)), (0, 0)]
    none_around = [None, *range(n - 2), None]
    special = [True, *[False] * (n - 2), True]
    pieces = Pieces(
        list(range(n)), ["[CLS]", *words, "[SEP]"], [0] * n, offsets, special, none_around, [None, *[0] * (n - 2), None]
    )
    rows = rng.gamma(sharpness, size=(layers, heads, n, n)).astype(np.float32) + 1e-6
    vectors = rng.normal(size=(2, layers, heads, n, 4)).astype(np.float32)
    probabilities = rows / rows.sum(-1, keepdims=True)
    norms = rng.gamma(4, size=(layers, heads, n)).astype(np.float32)
    mixing = np.full((layers, n), 0.2, np.float32)
    return AttentionView((text,), pieces, probabilities, np.log(probabilities), {}, *vectors, norms, mixing)


def test_a_long_text_has_few_elements_and_many_lines(browser: Any, tmp_path: Path) -> None:
    seen = long_view(512, sharpness=0.5)
    page = OpenedPage(browser, seen.save(tmp_path / "page.html"))
    assert page.page.evaluate("document.body.dataset.ready") == "#L0H0,text", "shaded text comes first"
    page.go("#L0H0+1,lines,min0")
    assert page.page.locator(".token-row").count() < 200
    assert page.page.locator("[data-key=from-510]").count() == 0
    assert "The strongest 20000 of" in page.status
    page.page.evaluate("window.scrollTo(0, 22 * 500)")
    page.page.wait_for_selector("[data-key=from-505]")
    assert page.page.locator(".token-row").count() < 200
    page.go("#L0H1,matrix")
    assert is_drawn(page, decode_root(root_code(seen.probabilities))[0, 1])
    page.go("#L0H1,matrix,zoom")
    assert 20 < page.page.locator(".matrix-label").count() < 250
    page.go("#L0H1,qk")
    assert "--layers 0" in page.page.inner_text("#view")
    page.go("#L0H0,grid")
    assert page.pixels(".cell canvas", 1).shape == (64, 64, 4)
    page.close()


REFERENCE = """() => {
    const reference = document.createElement("canvas");
    const lines = document.querySelectorAll("#printed line");
    const left = Math.min(...Array.from(lines, (line) => Number(line.getAttribute("x1")))) - 6;
    const parts = document.querySelectorAll("canvas.lines");
    [reference.width, reference.height] = [320, Array.from(parts).reduce((sum, part) => sum + part.height, 0)];
    const context = reference.getContext("2d");
    context.lineWidth = 1.6;
    for (const line of lines) {
        const [x1, y1, x2, y2] = ["x1", "y1", "x2", "y2"].map((name) => Number(line.getAttribute(name)));
        context.globalAlpha = Number(line.getAttribute("stroke-opacity"));
        context.strokeStyle = line.getAttribute("stroke");
        context.beginPath();
        context.moveTo(x1 - left, y1 - 22);
        context.lineTo(x2 - left, y2 - 22);
        context.stroke();
    }
    reference.className = "reference";
    document.body.append(reference);
}"""


def test_a_long_picture_of_lines_is_drawn_where_it_is_in_sight(browser: Any, tmp_path: Path) -> None:
    page = OpenedPage(browser, long_view(200).save(tmp_path / "page.html"), "#L0H0+1,lines,min0.05")
    assert page.page.locator("canvas.lines").count() == 9
    parts: dict[int, Any] = {}
    for top in range(0, 200 * 22, 600):
        page.page.evaluate("(top) => new Promise((done) => { scrollTo(0, top); setTimeout(done, 100); })", top)
        widths = page.page.evaluate("[...document.querySelectorAll('canvas.lines')].map(({ width }) => width)")
        in_sight = [part for part, width in enumerate(widths) if width]
        assert 0 < len(in_sight) <= 4, "the others take no memory"
        parts |= {part: page.pixels("canvas.lines", part) for part in in_sight}
    drawn = np.concatenate([parts[part] for part in range(9)])
    page.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.page.evaluate(REFERENCE)
    reference = page.pixels("canvas.reference")
    assert drawn.shape == reference.shape == (200 * 22, 320, 4) and drawn[:, :, 3].any()
    difference = np.abs(drawn[:, :, 3].astype(int) - reference[:, :, 3])
    assert difference.max() <= 32 and difference.mean() < 1.5, "as if it were one canvas, but for rounding"
    seams = difference[528::528]
    assert seams.mean() < 1.5
    page.close()


def test_noise_is_packed_by_its_bytes_alone() -> None:
    noise = root_code(long_view(512, sharpness=1.0).probabilities).tobytes()
    packed = deflated(noise)
    assert zlib.decompress(packed) == noise and len(packed) < 0.93 * len(zlib.compress(noise, 9))
    repeated = noise[:4096] * 20
    assert zlib.decompress(deflated(repeated)) == repeated and len(deflated(repeated)) < 6000


def test_right_to_left(browser: Any, tmp_path: Path) -> None:
    seen = long_view(6)
    text = "שלום לכל העולם הזה"
    words = text.split()
    starts = [text.index(word) for word in words]
    pieces = replace(
        seen.tokens,
        pieces=["[CLS]", *words, "[SEP]"],
        offsets=[(0, 0), *((at, at + len(word)) for at, word in zip(starts, words, strict=True)), (0, 0)],
    )
    page = OpenedPage(browser, replace(seen, texts=(text,), tokens=pieces).save(tmp_path / "page.html"), "#L0H0,text")
    lefts = [page.page.locator(f"[data-key=text-{at}]").bounding_box()["x"] for at in range(1, 5)]
    assert lefts == sorted(lefts, reverse=True)
    page.go("#L0H0,lines")
    assert page.page.locator("[data-key=from-1]").inner_text() == words[0]
    page.close()


def test_only_some_layers(browser: Any, tmp_path: Path, view: AttentionView) -> None:
    page = OpenedPage(browser, view.save(tmp_path / "page.html", layers=[2, 0]), "#L2H1,matrix")
    assert is_drawn(page, decode_root(root_code(view.probabilities))[2, 1])
    page.press("ArrowDown")
    assert page.address == "#L0H1,matrix"
    page.go("#L1H1,matrix")
    assert page.page.evaluate("document.body.dataset.ready") == "#L0H1,matrix", "there is no layer 1"
    page.go("#L2H1,norm,matrix")
    assert is_drawn(page, replace(view, probabilities=decode_root(root_code(view.probabilities))).contributions()[2, 1])
    page.close()
    with refused("out-of-range", kind=BadConfig):
        view.save(tmp_path / "page.html", layers=[3])


def test_the_page_of_the_documents_pair_is_small(tmp_path: Path) -> None:
    try:
        model = bertworks.load("minilm")
    except bertworks.errors.NotFound:
        pytest.skip("minilm is not installed")
    seen = model.attention("I went to the store.", "At the store, I bought fresh strawberries.")
    assert len(seen.tokens.ids) == 19
    assert seen.save(tmp_path / "page.html").stat().st_size <= 250_000


@pytest.mark.slow
def test_a_page_of_512_tokens_and_144_heads(browser: Any, tmp_path: Path) -> None:
    path = long_view(512, 12, 12, sharpness=1.0).save(tmp_path / "page.html")
    assert path.stat().st_size <= 30_000_000
    page = OpenedPage(browser, path, "#L0H0,lines")
    page.go("#L11H0+1+2+3+4+5+6+7+8+9+10+11,lines,min0")
    assert "of the weight is drawn" in page.status
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("preset", FAMILIES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_of_every_family(browser: Any, tmp_path: Path, preset: str, scheme: str) -> None:
    pair = None if preset in ("gpt-mini", "roberta-mini") else B
    model = bench(preset)
    seen = model.attention(A, pair)
    path = seen.save(
        tmp_path / "page.html", other=model.attention("ba de ku.", pair), atlas=write_atlas(tmp_path / "a.json")
    )
    page = OpenedPage(browser, path, color_scheme=scheme)
    for language in ("en", "zh"):
        if language == "zh":
            page.page.check("#zh", force=True)
        for view in VIEWS:
            for switches in ("", ",words,norm", ",nospecials,t1"):
                page.go(f"#L1H1+2,{view}{switches}")
                assert page.page.locator("#view *").count() > 3 and page.status
    page.close()


# ---------------------------------------------------------------------- modules, Python, command line


@pytest.mark.parametrize("name", ["attention", "words"])
def test_joined_modules_have_different_names(name: str) -> None:
    """At the top of modules, which become one."""
    names: list[str] = []
    seen, waiting = set(), [name]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        text = (PARTS / f"{module}.js").read_text("utf-8")
        names += re.findall(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)
        waiting += IMPORT.findall(text)
    assert len(names) > 10 and len(set(names)) == len(names)


def test_the_modules_by_themselves(tmp_path: Path) -> None:
    if not (node := shutil.which("node")):
        pytest.skip("there is no node on this machine")
    shutil.copytree(PARTS, tmp_path / "parts")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(Path(__file__).parent / "page_parts.js", tmp_path / "page_parts.test.js")
    done = subprocess.run([node, "--test", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"# pass [5-9]|# pass \d\d", done.stdout)


def test_two_texts_share_tokens_in_order() -> None:
    model = bench()
    first, second = model.attention("ba defi ku ba"), model.attention("ku ba de")
    words = word_partners(first, second)
    assert [word for word in first.units.words if word] == ["ba", "defi", "ku", "ba"]
    assert words == [0, -1, -1, 1, 2, len(second.units) - 1]
    assert piece_partners(first, first) == list(range(len(first.tokens.ids)))
    with refused("not-comparable", kind=Unsupported):
        first.save("never.html", other=model.attention("mo mo"))


def test_pictures_without_a_browser(view: AttentionView) -> None:
    svg = view.svg(1, [0, 2], token=3)
    weights = decode_root(root_code(view.probabilities))[1][[0, 2]][:, 3]
    assert svg.count("<line") == (weights >= 0.02).sum() and svg.count("#0072b2") > 1 and "L1H2</text>" in svg
    for arguments in ((9, 0), (0, 4), (0, [0, -1])):
        with refused("out-of-range", kind=BadConfig):
            view.svg(*arguments)
    with refused("out-of-range", kind=BadConfig):
        view.svg(0, 0, token=99)


def test_a_page_too_large_for_a_notebook(view: AttentionView, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bertworks.inspect.view.MAX_NOTEBOOK_BYTES", 1000)
    assert "iframe" not in view._repr_html_() and ".show()" in view._repr_html_()
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert view.show(tmp_path / "a.html") == tmp_path / "a.html" and opened == [(tmp_path / "a.html").as_uri()]
    shown: list[str] = []
    monkeypatch.setattr("bertworks.inspect.view.notebook_display", lambda: shown.append)
    view.show(tmp_path / "b.html")
    assert 'href="' in shown[0] and (tmp_path / "b.html").is_file() and len(opened) == 1
    monkeypatch.undo()
    monkeypatch.setattr("bertworks.inspect.view.notebook_display", lambda: shown.append)
    assert view.show(tmp_path / "c.html") is None and shown[1].startswith("<iframe srcdoc=")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bench().save(tmp_path_factory.mktemp("model") / "bert")


def test_the_command(folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("sentence1,sentence2,label\nba defi ku,go ba de,1\nde ku fi,ba ba go,0\n")
    out = tmp_path / "page.html"
    done = run(
        "inspect",
        folder,
        "--file",
        rows,
        "--row",
        "2",
        "--layers",
        "0,2",
        "--out",
        out,
        "--json",
        "--against-text",
        "ba ku",
    )
    summary = json.loads(done.stdout)
    assert summary["tokens"][1] == "de" and len(summary["strongest"]) == 10 and summary["tokens"].count("[SEP]") == 2
    assert '"layers":[0,2]' in out.read_text("utf-8")
    assert refusal("inspect", folder, "--file", rows, "--row", "3")["code"] == "out-of-range"
    assert refusal("inspect", folder)["code"] == "missing-option"
    assert refusal("inspect", folder, "--text", "ba", "--open")["code"] == "missing-option"
    assert refusal("inspect", folder, "--text", "ba", "--layers", "x")["code"] == "not-a-number"
    assert refusal("inspect", folder, "--text", "ba", "--layers", "5-4")["code"] == "out-of-range"
    for ignored in (["--layers", "0"], ["--against", folder], ["--against-pair", "ba"], ["--row", "2"]):
        assert refusal("inspect", folder, "--text", "ba", *ignored)["code"] == "missing-option", ignored
    assert (
        refusal("inspect", folder, "--text", "ba", "--against", folder, "--against-text", "ku")["code"]
        == "conflicting-options"
    )


def test_what_cannot_be_shown(folder: Path, tmp_path: Path) -> None:
    error = refusal("inspect", folder, "--text", "ba " * 600)
    assert error["code"] == "too-long" and "1,529 characters" in str(error)
    bench("gpt-mini").save(tmp_path / "gpt")
    assert refusal("inspect", tmp_path / "gpt", "--text", "ba", "--pair", "de")["code"] == "no-pairs"
    (tmp_path / "atlas.json").write_text('{"heads": 3}')
    out = tmp_path / "a.html"
    assert (
        refusal("inspect", folder, "--text", "ba", "--out", out, "--atlas", tmp_path / "atlas.json")["code"]
        == "not-an-atlas"
    )
    write_atlas(tmp_path / "atlas.json", layers=2)
    assert (
        refusal("inspect", folder, "--text", "ba", "--out", out, "--atlas", tmp_path / "atlas.json")["code"]
        == "not-comparable"
    )
    assert not out.exists()


def test_bytes_of_one_character_are_shown_as_bytes(view: AttentionView) -> None:
    """Byte-level pieces: three for one character, whose stretch of the text is the same."""
    tokens = Pieces([1, 2, 3], ["Ġa", "ðŁ", "ĺĢ"], [0] * 3, [(0, 1), (1, 2), (1, 2)], [False] * 3, [0, 1, 1], [0] * 3)
    assert token_texts(replace(view, tokens=tokens, texts=("a\U0001f600",))) == ["a", "⟨F0 9F⟩", "⟨98 80⟩"]
    assert "⟨F0 9F⟩" in attention_page(replace(long_view(3), tokens=tokens, texts=("a\U0001f600",)))
