"""Pages: one file, nothing fetched, everything escaped, two languages; rendered in a real browser."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bertworks.config import DataConfig
from bertworks.data.shards import Shards
from bertworks.inspect.atlas_words import NAME_TITLES
from bertworks.measure.metrics import METRICS
from bertworks.page.bars import Bar, bar_table
from bertworks.page.curves import Curve, figure
from bertworks.page.html import bilingual, escape, page, paragraph, table
from bertworks.reports.masks import LABELS, count_states, terminal_line, view_masks, write_masks_page
from bertworks.reports.page import key_figures, write_report
from bertworks.reports.pretrain import loss_figure
from bertworks.reports.tour import NamedHeads, TourResults, _inside
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.events import read_events
from browsing import opened, without_script
from texts import make_shards

ATTACK = 'A <script>alert("x")</script> and <img src=x onerror=alert(1)> & "quotes" here. Another one follows it. And more of it.'


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
    assert f"columns-{columns}" in html and html.count('class="figure-box"') == n


def test_every_metric_is_explained_in_both_languages() -> None:
    for metric in METRICS.values():
        english, chinese = metric.help
        assert english.isascii() and re.search("[\u4e00-\u9fff]{4}", chinese), metric.name


def test_the_table_of_a_figure() -> None:
    curves = [
        Curve(("<a>", "甲"), [(1.0, 0.5), (2.0, math.nan), (12345.0, 1234.5)]),
        Curve(("b", "乙"), [(2.0, 1 / 3)], dots=True),
    ]
    html = figure(("t", "题"), curves, x_title=("x", "横"), baseline=(("base", "基"), 2.0), best=2.0)
    assert re.findall(r"<td>(.*?)</td>", html.replace("<small>", "<!--").replace("</small>", "-->")) == [
        *("1", "0.5", ""),
        *("2<!-- " + bilingual("kept model", "保留的模型") + "-->", "", "0.33333"),
        *("12,345", "1,234", ""),
    ]
    assert "&lt;a&gt;" in html and "<a>" not in html and html.count('<th class="dots">') == 1
    assert f'<tfoot><tr><th>{bilingual("base", "基")}</th><td colspan="2">2.000</td></tr></tfoot>' in html
    shares = figure(("t", "题"), curves, x_title=("x", "横"), y_percent=True, baseline=(("base", "基"), math.inf))
    assert "<td>33.333%</td>" in shares and "<tfoot" not in shares
    assert figure(("t", "题"), [Curve(("a", "甲"), [(1.0, math.nan)])], x_title=("x", "横")) == ""


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


def test_the_page_of_masks_needs_no_script(browser: Any, masks_page: Path) -> None:
    with opened(browser, masks_page) as page:
        assert page.locator(".example").count() == 40 and page.locator("script").count() == 0
        for shown, hidden in (("en", "zh"), ("zh", "en")):
            assert (
                page.locator(f"h1 [lang={shown}]").is_visible() and not page.locator(f"h1 [lang={hidden}]").is_visible()
            )
            page.locator(".switch label").click()
        assert (
            page.locator(".masked").first.evaluate("(node) => getComputedStyle(node).backgroundColor")
            != "rgba(0, 0, 0, 0)"
        )


def test_the_tour_shows_names_of_heads_and_what_cannot_be_named() -> None:
    heads = [{"layer": 0, "head": head, "names": ["next"] if head else ["cls", "same"]} for head in range(9)]
    atlas = {"heads": heads, "unseen": {"across": "cannot be seen: <no> pairs"}, "passages": 1200, "documents": 60}
    models = [
        NamedHeads(("mine", "我的"), "inside/a", atlas),
        NamedHeads(("other", "别的"), "inside/b", None),
    ]
    html = "".join(_inside(TourResults(pair=("A <b>.", "B."), inside=models)))
    (names,) = re.findall(r'<table class="heads">.*</table>', html)
    links = "".join(f'<a href="inside/a/attention.html#L0H{head}">L0H{head}</a>, ' for head in range(1, 7))
    assert f"<td>{bilingual(*NAME_TITLES['next'])}</td><td>{links[:-2]} +2</td><td>–</td>" in names
    assert names.count("<tr>") == 4, "a header, and the names that occur"
    assert (
        "1,200 passages of 60 documents; cannot be seen: &lt;no&gt; pairs (same or related word in the other text)"
        in html
    )
    assert "no head in any model: previous word, " in html and "in any model: next" not in html
    assert "other: no passages; not enough text (next word" in html and "文本不足（下一个词" in html
    assert "A &lt;b&gt;. / B." in html and html.count('href="inside/b/attention.html"') == 1
    assert html.count('href="inside/a/atlas.html"') == 1 and "inside/b/atlas.html" not in html


# ---------------------------------------------------------------------- what is drawn


def test_a_report_has_one_script_and_its_policy_allows_no_other(report: Path) -> None:
    html = report.read_text(encoding="utf-8")
    assert "<script" not in without_script(html)
    assert "style=" not in html and "innerHTML" not in html
    assert "<i>mine</i>" in html and len(html) < 60_000, "small"


RUN_EVENTS = Path(__file__).parents[1] / "docs" / "runs" / "bert-mini.jsonl"
LOSSES = [(10.0, 1.25), (20.0, 0.75), (1500.0, 0.5)]
HELD_OUT = [(20.0, 0.9), (1500.0, 0.625)]
SHARES = [(0.5, 0.4), (0.875, 0.9)]
BARS = [Bar(("<i>mine</i>", "我的"), 0.823, (0.75, 0.9)), Bar(("theirs", "他的"), 0.4, (0.3, 0.512))]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With each kind of picture."""
    steps = ("step", "步数")
    loss = [Curve(("training", "训练"), LOSSES), Curve(("held out", "留出集"), HELD_OUT, dots=True)]
    body = [
        figure(("Loss", "损失"), loss, x_title=steps, baseline=(("unigram", "一元"), 1.5), best=1500),
        figure(
            ("Accuracy by confidence", "准确率"),
            [Curve(("model", "模型"), SHARES, dots=True)],
            x_title=("confidence", "置信度"),
            x_percent=True,
            y_percent=True,
            diagonal=("perfect", "完美"),
        ),
        bar_table((("model", "模型"), ("accuracy", "准确率"), ("CI", "区间")), BARS, (("chance", "随机"), 0.25)),
        '<table class="confusion" data-shade="row"><tr><th></th><th>1</th><th>2</th></tr>'
        "<tr><td>1</td><td>3</td><td>1</td></tr><tr><td>2</td><td>0</td><td>0</td></tr></table>",
        loss_figure(read_events(RUN_EVENTS), "masked", ("masked tokens", "遮盖词元")),
    ]
    return write_report(tmp_path_factory.mktemp("report") / "report.html", ("Report", "报告"), body)


def axis_values(picture: Any, axis: str, places: list[float]) -> list[float]:
    """What the pixels of a picture stand for, by the labels of its axis."""
    ticks = picture.locator(f".{axis}-tick").evaluate_all(
        "(texts, axis) => texts.map((text) => [text.textContent, Number(text.getAttribute(axis))])", axis
    )
    (first, start), (last, end) = (
        (float(text.rstrip("%").replace(",", "")) / (100 if "%" in text else 1), place)
        for text, place in (ticks[0], ticks[-1])
    )
    offset = 4 if axis == "y" else 0  # labels stand a little lower than their line
    return [first + (place + offset - start) / (end - start) * (last - first) for place in places]


def drawn_points(picture: Any, number: int) -> list[tuple[float, float]]:
    """Of one of its curves, read off the axes."""
    pairs = [pair.split(",") for pair in picture.locator("polyline").nth(number).get_attribute("points").split()]
    xs, ys = ([float(value) for value in values] for values in zip(*pairs, strict=True))
    return list(zip(axis_values(picture, "x", xs), axis_values(picture, "y", ys), strict=True))


def test_curves_are_drawn_where_their_numbers_are(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        losses, reliability, run = page.locator("figure.curves").all()
        for number, points in enumerate((LOSSES, HELD_OUT)):
            for drawn, (x, y) in zip(drawn_points(losses, number), points, strict=True):
                assert drawn == (pytest.approx(x, abs=2), pytest.approx(y, abs=0.005))
        assert [float(y) for _, y in drawn_points(reliability, 0)] == pytest.approx([0.4, 0.9], abs=0.005)
        assert [float(x) for x, _ in drawn_points(reliability, 0)] == pytest.approx([0.5, 0.875], abs=0.005)
        assert reliability.locator(".y-tick").all_text_contents()[-1] == "100%"
        baseline = losses.locator(".reference-line")
        assert axis_values(losses, "y", [float(baseline.get_attribute("y1"))]) == pytest.approx([1.5], abs=0.01)
        ring = losses.locator(".best-mark")
        place = [axis_values(losses, axis, [float(ring.get_attribute(f"c{axis}"))])[0] for axis in "xy"]
        assert place == pytest.approx([1500, 0.625], rel=0.01), "around the kept model"
        lines = losses.locator("polyline").evaluate_all(
            "(lines) => lines.map((line) => [getComputedStyle(line).stroke, line.getAttribute('stroke-dasharray')])"
        )
        assert len({colour for colour, _ in lines}) == len({dash for _, dash in lines}) == 2
        events = [json.loads(line) for line in RUN_EVENTS.read_text().splitlines()]
        logged = [(event["step"], event["masked"]) for event in events if event["kind"] == "train"]
        drawn = drawn_points(run, 0)
        assert [y for _, y in drawn] == pytest.approx([loss for _, loss in logged], abs=0.02)
        assert [x for x, _ in drawn] == pytest.approx([step for step, _ in logged], abs=3)


def test_values_are_read_by_mouse_and_by_keyboard(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        figure_box = page.locator("figure.curves").first
        plot, reading = figure_box.locator(".plot"), figure_box.locator(".reading")
        assert not reading.is_visible()
        box = plot.bounding_box()
        page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 60)
        assert " ".join(reading.inner_text().split()) == "step 1,500 training 0.5 held out 0.625"
        page.mouse.move(0, 0)
        assert not reading.is_visible()
        plot.focus()
        for key, shown in (("Home", "step 10 training 1.25"), ("ArrowRight", "step 20 training 0.75 held out 0.9")):
            page.keyboard.press(key)
            assert " ".join(reading.inner_text().split()) == shown
        page.keyboard.press("Escape")
        assert not reading.is_visible()


def test_bars_and_cells_have_the_size_of_their_numbers(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        for row, bar in zip(page.locator(".bars tbody tr").all(), BARS, strict=True):
            track = row.locator(".bar-track").bounding_box()
            drawn = row.locator(".bar").bounding_box()
            assert drawn["width"] / track["width"] == pytest.approx(bar.share, abs=0.005)
            interval = row.locator(".bar-interval").bounding_box()
            ends = [interval["x"] - track["x"], interval["x"] + interval["width"] - track["x"]]
            assert [end / track["width"] for end in ends] == pytest.approx(bar.interval, abs=0.005)
            line = row.locator(".bar-reference").bounding_box()
            assert (line["x"] + 1 - track["x"]) / track["width"] == pytest.approx(0.25, abs=0.005)
        shares = page.locator("[data-shade] td").evaluate_all(
            "(cells) => cells.map((cell) => cell.style.getPropertyValue('--share'))"
        )
        assert shares == ["", "0.75", "0.25", "", "0", "0"]


def test_a_report_in_both_languages_light_dark_and_on_paper(browser: Any, report: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        with opened(browser, report, color_scheme=scheme) as page:
            axis_title = page.locator("figure.curves svg text[lang]").first
            colours[scheme] = page.evaluate(
                "[getComputedStyle(document.body).backgroundColor,"
                " getComputedStyle(document.querySelector('polyline')).stroke]"
            )
            for language, other in (("en", "zh"), ("zh", "en")):
                assert page.locator(f"figure.curves svg text[lang={language}]").first.is_visible()
                assert not page.locator(f"figure.curves svg text[lang={other}]").first.is_visible()
                label = page.locator(".plot").first.get_attribute("aria-label")
                assert label.startswith({"en": "Loss: ", "zh": "损失："}[language])
                page.locator(".switch label").click()
            assert axis_title.text_content() == "step"
            page.emulate_media(media="print")
            assert page.locator(".plot svg").first.is_visible() and not page.locator(".save").first.is_visible()
    assert not set(colours["light"]) & set(colours["dark"])


def test_a_report_without_a_script_has_all_numbers_as_text(browser: Any, report: Path) -> None:
    for media in ("screen", "print"):
        with opened(browser, report, java_script_enabled=False) as page:
            page.emulate_media(media=media)
            assert page.locator("svg").count() == 0
            losses, reliability, _ = page.locator("figure.curves table").all()
            assert losses.inner_text().split("\n")[0].split() == ["step", "training", "held", "out"]
            shown = [" ".join(row.inner_text().split()) for row in losses.locator("tr").all()[1:]]
            assert shown == ["10 1.25", "20 0.75 0.9", "1,500 kept model 0.5 0.625", "unigram 1.500"]
            assert "87.5%" in reliability.inner_text() and "90%" in reliability.inner_text()
            bars = page.locator(".bars").inner_text()
            assert all(text in bars for text in ("mine", "82.3%", "75.0% – 90.0%", "chance", "25.0%"))
            height = page.locator(".numbers").last.evaluate("(node) => [node.scrollHeight, node.clientHeight]")
            assert (height[0] > height[1]) == (media == "screen"), "a long table scrolls, and is whole on paper"


def test_a_picture_is_saved_as_svg(browser: Any, report: Path, tmp_path: Path) -> None:
    with opened(browser, report) as page:
        with page.expect_download() as download:
            page.locator("figure.curves").first.hover()
            page.locator(".save").first.click()
        download.value.save_as(tmp_path / "loss.svg")
    text = (tmp_path / "loss.svg").read_text(encoding="utf-8")
    picture = ElementTree.fromstring(text)
    assert download.value.suggested_filename == "loss.svg" and "var(" not in text and "步数" not in text
    assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) == 2
