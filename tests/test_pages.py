"""Pages: one file, nothing fetched, everything escaped, two languages; rendered in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bertworks.config import DataConfig
from bertworks.data.shards import Shards
from bertworks.measure.metrics import METRICS
from bertworks.page.curves import Curve, figure
from bertworks.page.html import bilingual, escape, page, paragraph, table
from bertworks.reports.masks import LABELS, count_states, terminal_line, view_masks, write_masks_page
from bertworks.reports.page import key_figures
from bertworks.text.tokenizer import Tokenizer
from texts import make_shards

ATTACK = 'A <script>alert("x")</script> and <img src=x onerror=alert(1)> & "quotes" here. Another one follows it. And more of it.'
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Shards:
    tokenizer = Tokenizer.load(shared / "vocab" / "bert-base-uncased")
    texts = [f"{ATTACK} Number {number} is unbelievably nice. So is this." for number in range(30)]
    return make_shards(tmp_path_factory.mktemp("page"), texts, tokenizer)


@pytest.fixture(scope="module")
def masks_page(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("html") / "masks.html"
    write_masks_page(
        path, *view_masks(shards, DataConfig(pairs="nsp", masking="word", mask_rate=0.3), seed=0, epoch=0, lines=40)
    )
    return path


def test_html_helpers() -> None:
    assert escape('<b a="1">&\'') == "&lt;b a=&quot;1&quot;&gt;&amp;&#x27;"
    assert bilingual("a", "b") == '<span lang="en">a</span><span lang="zh">b</span>'
    html = table(["x", "y", "z", "w"], [["<i>", 1234, "<u>", "9.5%"], ["r", 5, "7", ""]])
    assert html.count("&lt;u&gt;") == 1 and "<i>" in html
    assert '<td class="number">1,234</td>' in html
    assert '<td class="number">9.5%</td>' in html
    assert "<td>7</td>" in html, "by columns"
    assert page(("<t>", "题"), "body").count("&lt;t&gt;") == 2


def test_lines_below_the_first_are_a_list_and_backticks_are_code() -> None:
    text = "skipped 2 rows:\n  a.csv, line 5: <i>\n  a.csv, line 7: no label\n`--skip-bad` skips"
    assert paragraph(text) == (
        "skipped 2 rows:<ul><li>a.csv, line 5: &lt;i&gt;</li><li>a.csv, line 7: no label</li>"
        "<li><code>--skip-bad</code> skips</li></ul>"
    )
    assert paragraph("a `b` c") == "a <code>b</code> c"


@pytest.mark.parametrize(("n", "columns"), [(3, 3), (6, 6), (7, 4), (8, 4), (10, 5), (11, 6), (13, 5)])
def test_rows_of_key_figures_are_as_equal_as_can_be(n: int, columns: int) -> None:
    html = key_figures([(str(number), ("figure", "数字")) for number in range(n)])
    assert f"--columns: {columns}" in html and html.count('class="figure-box"') == n


def test_every_metric_is_explained_in_both_languages() -> None:
    for metric in METRICS.values():
        english, chinese = metric.help
        assert english.isascii() and re.search("[\u4e00-\u9fff]{4}", chinese), metric.name


def test_shares_are_in_percent_on_the_axis() -> None:
    curve = Curve(("a", "甲"), [(0.0, 0.4), (1.0, 0.6)])
    shares = figure(("t", "题"), [curve], x_title=("x", "横"), y_percent=True)
    assert ">50%</text>" in shares and ">0.5</text>" not in shares and ">1</text>" in shares
    assert ">100%</text>" in figure(("t", "题"), [curve], x_title=("x", "横"), x_percent=True, y_percent=True)


def test_a_single_point_is_drawn() -> None:
    figures = [
        figure(("t", "题"), [Curve(("a", "甲"), points)], x_title=("x", "横"))
        for points in ([(1.0, 2.0)], [(1.0, 2.0), (2.0, 3.0)])
    ]
    assert [picture.count("<circle") for picture in figures] == [1, 0]


def test_the_page_is_escaped_and_self_contained(masks_page: Path) -> None:
    html = masks_page.read_text(encoding="utf-8")
    assert "<script" not in html
    assert "<img" not in html
    assert not re.search(r'(?:src|href)\s*=\s*["\']?(?:https?:)?//', html)
    assert "default-src 'none'" in html and "&lt;" in html
    assert html.count('class="example') == 40
    for label, kind in enumerate(("same", "other")):
        assert f'<span class="label {kind}">{bilingual(*LABELS["nsp", label][1:])}</span>' in html
    assert html.count('class="label ') == 40, "each with one"
    assert all(f'class="token {state}"' in html for state in ("masked", "random", "kept", "special", "text"))
    assert 'class="word whole' in html


def test_views_match_the_loader(shards: Shards) -> None:
    epoch, views = view_masks(shards, DataConfig(pairs="nsp", masking="word"), seed=3, epoch=1, lines=20)
    first = epoch.examples_of(0).tolist()[0]
    batch = epoch.gather([first])
    tokenizer = shards.tokenizer
    assert [token.seen for token in views[0].tokens] == [tokenizer.readable(id) for id in batch.ids.tolist()]
    targets = [i for i, token in enumerate(views[0].tokens) if token.state in ("masked", "random", "kept")]
    assert targets == batch.targets.tolist()
    assert sum(count_states(views).values()) == sum(len(view.tokens) for view in views)
    assert all(
        word[0].state == "special" or len({token.state in ("text",) for token in word}) == 1
        for view in views
        for word in view.words()
    )
    line = terminal_line(views[0]).plain
    assert line.startswith(f" {LABELS['nsp', views[0].label][0]} ") and "[CLS]" in line


def test_the_page_renders_in_a_browser(masks_page: Path, tmp_path: Path) -> None:
    """It renders without a script: one language at a time, all examples with their boxes."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine: .ci/run installs it")
    sizes = []
    for name, content in (
        ("en", masks_page.read_text()),
        ("zh", masks_page.read_text().replace('id="zh"', 'id="zh" checked')),
    ):
        page_file = tmp_path / f"{name}.html"
        picture = tmp_path / f"{name}.png"
        page_file.write_text(content)
        flags = [*FLAGS, f"--user-data-dir={tmp_path / name}", "--window-size=1000,1400", f"--screenshot={picture}"]
        subprocess.run([chromium, *flags, f"file://{page_file}"], capture_output=True, timeout=120, check=True)
        sizes.append(picture.stat().st_size)
        assert picture.read_bytes()[:4] == b"\x89PNG"
    assert min(sizes) > 20_000 and sizes[0] != sizes[1], "the languages look different"
