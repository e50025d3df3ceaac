"""The atlas as a page, in a real browser; and the heads of two models compared."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertworks
from bertworks.cli.ablation import print_ablation
from bertworks.inspect.ablation import Ablation
from bertworks.inspect.atlas import Atlas, atlas
from bertworks.inspect.atlas_page import atlas_page, write_atlas_page
from bertworks.inspect.atlas_words import THRESHOLDS
from bertworks.inspect.compare import Comparison, compare_atlases, compare_heads, mutual_best
from bertworks.inspect.importance import Importance
from bertworks.inspect.naming import Thresholds
from bertworks.model.init import init_local_attention
from bertworks.text.backends import word_piece
from bertworks.text.tokenizer import Tokenizer
from browsing import opened
from commands import refusal, run
from refusals import refused

HOSTILE = "</script><img src=x onerror=alert(1)>"
OWN = '<b>"mine", & yours</b>'
SIZES: dict[str, Any] = {"hidden_size": 64, "n_heads": 4, "n_layers": 2, "ffn_size": 32, "n_positions": 128}


def context(word: str) -> dict[str, str]:
    return {"before": "some <i>words</i> before ", "word": word, "after": " and\u202eafter\u2028"}


def evidence(*, strong: bool = False, confirmed: bool | None = True) -> dict[str, Any]:
    return {
        "strong": strong,
        "confirmed": confirmed,
        "numbers": {"lift": 12.5, "mass": 0.31, "planted twin": 40.0},
        "conditions": [{"what": "lift", "value": 12.5, "lower": 8.25, "needs": 5.0}],
        "null": {"lift": 1.02},
        "types": 81,
        "documents": 66,
        "by": "by the company they keep",
        "notes": ["also across"],
        "examples": [{"query": context(HOSTILE), "key": context("]]><!--"), "weight": 0.75, "document": 3}],
    }


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    """As the JSON of an atlas has it: three layers of four heads."""
    named: dict[tuple[int, int], dict[str, Any]] = {
        (0, 1): {"next": evidence(strong=True)},
        (1, 2): {"same": evidence(), "related": evidence(confirmed=None)},
        (2, 0): {"same": evidence(confirmed=False)},
        (2, 3): {OWN: evidence(confirmed=None)},
    }
    heads = []
    for layer in range(3):
        for head in range(4):
            names = named.get((layer, head), {})
            verdict = {(0, 1): "worse", (2, 2): "better"}.get((layer, head), "")
            change = {"worse": 0.4, "better": -0.2, "": 0.01}[verdict]
            row = {
                "layer": layer,
                "head": head,
                "names": list(names),
                "evidence": names,
                "description": {"cls": 0.2, "entropy": 0.5, "something new": 0.1},
                "profile": {str(offset): 0.5 if offset == 1 else 0.02 for offset in range(-3, 4) if offset},
                "importance": {
                    "change": change,
                    "low": change - 0.05,
                    "high": change + 0.05,
                    "gradient": 0.01,
                    "verdict": verdict,
                },
            }
            heads.append(row)
    same_word = {
        "heads": [[1, 2], [2, 0]],
        "confirmed": False,
        "pairs": 90,
        "types": 60,
        "documents": 50,
        "other_sets": 10,
        "as_large": 2,
        "loss": [3.5, 5.1],
        "change": [0.2, 0.1],
        "other_change": [0.1, 0.1],
        "difference": [0.1, 0.01, 0.2],
        "against_others": [0.1, -0.05, 0.25],
    }
    return {
        "format": 2,
        "model": "a" * 64,
        "corpus": "b" * 64,
        "passages": 500,
        "documents": 420,
        "max_tokens": 128,
        "thresholds": {"z": 4.0, "same_lift": 5.0, "a new one": 1.5},
        "null": {"names": 0, "tests": 1296},
        "unseen": {"pieces": "not enough text", "across": "cannot be seen: these are no pairs of texts"},
        "ablation": {
            "measure": "masked loss",
            "distance": False,
            "replacement": "mean",
            "sequences": 200,
            "documents": 190,
            "loss": 3.2,
            "same_word": same_word,
            "confidence": 0.95,
            "critical": 3.1,
            "reference": 0.0,
            "worse": 1,
            "better": 1,
        },
        "heads": heads,
    }


@pytest.fixture(scope="module")
def path(content: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_atlas_page(tmp_path_factory.mktemp("atlas") / "atlas.html", content, model=HOSTILE)


def entry_shown(page: Any) -> list[str]:
    shown: list[str] = page.eval_on_selector_all(
        "article.entry", "(entries) => entries.filter((entry) => entry.offsetParent !== null).map((entry) => entry.id)"
    )
    return shown


def test_by_keyboard(browser: Any, path: Path) -> None:
    """Arrows move, n finds the next one, i shows importance, and the address follows."""
    with opened(browser, path) as page:
        assert entry_shown(page) == ["L0H1"], "the first head with a name"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        assert entry_shown(page) == ["L1H2"] and page.evaluate("location.hash") == "#L1H2"
        assert page.evaluate("document.activeElement.getAttribute('href')") == "#L1H2"
        assert page.inner_text("#status") == "L1H2: same, related"
        page.keyboard.press("n")
        assert entry_shown(page) == ["L2H0"]
        page.keyboard.press("ArrowLeft")
        assert entry_shown(page) == ["L2H3"], "round the edge"
        page.keyboard.press("i")
        assert page.is_checked("#choose-importance") and page.evaluate("location.hash") == "#L2H3,importance"
        page.keyboard.press("?")
        assert page.is_visible("#help ul")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.tagName") in ("SUMMARY", "A", "BUTTON")


def test_by_mouse_and_by_address(browser: Any, path: Path) -> None:
    """A filter fades the others; what the address says is shown again."""
    with opened(browser, path, "#L2H1,same") as page:
        assert entry_shown(page) == ["L2H1"]
        faded = page.eval_on_selector_all("a.cell.faded", "(cells) => cells.length")
        assert faded == 10 and "2 heads: same" in page.inner_text("#status")
        page.click('#legend li[data-name="same"] button')
        assert page.eval_on_selector_all("a.cell.faded", "(cells) => cells.length") == 0
        page.click('a.cell[href="#L1H2"]')
        assert entry_shown(page) == ["L1H2"]
        page.click("#legend li.name-own button")
        address = page.evaluate("location.hash")
        assert page.eval_on_selector_all("a.cell.faded", "(cells) => cells.length") == 11
        page.keyboard.press("Escape")
        assert page.eval_on_selector_all("a.cell.faded", "(cells) => cells.length") == 0
    with opened(browser, path, address) as page:
        assert page.eval_on_selector_all("a.cell.faded", "(cells) => cells.length") == 11, "a name with any sign"
    with opened(browser, path, "#nonsense,%E0%A4%A") as page:
        assert entry_shown(page) == ["L0H1"]


def test_the_profile_is_drawn(browser: Any, path: Path) -> None:
    with opened(browser, path, "#L1H2") as page:
        rows = page.eval_on_selector_all(
            "#L1H2 .bar-row", "(rows) => rows.map((row) => [row.innerText, row.querySelector('.bar').offsetWidth])"
        )
        assert [text.split()[0] for text, _ in rows] == ["−3", "−2", "−1", "+1", "+2", "+3"]
        widths = [width for _, width in rows]
        assert max(widths) == widths[3] > 10 * widths[0] > 0


def test_hostile_words_are_text(browser: Any, path: Path) -> None:
    """Also in a name, a model's name and an example: nothing runs, and all of it can be read."""
    with opened(browser, path, "#L1H2") as page:
        assert HOSTILE in page.inner_text("#L1H2 section:first-of-type mark >> nth=0")
        assert page.locator("img").count() == 0 and HOSTILE in page.inner_text("h1 [lang=en]")
        assert "⟨202E⟩" in page.inner_text("#L1H2") and OWN in page.inner_text("#legend")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_languages_in_light_and_dark(browser: Any, path: Path, scheme: str) -> None:
    with opened(browser, path, "#L2H0", color_scheme=scheme) as page:
        assert "same word" in page.inner_text("#entries")
        page.check("#zh", force=True)
        text = page.inner_text("main")
        assert "相同的词" in text and "same word" not in text and "文本不足" in text
        assert "干预实验未能证实" in page.inner_text("#L2H0")
        page.keyboard.press("ArrowDown")
        page.evaluate("document.activeElement.blur()")
        ink, paper = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
        brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
        assert (brightness[0] > brightness[1]) == (scheme == "dark")


def test_without_a_script_everything_can_be_read(browser: Any, path: Path) -> None:
    with opened(browser, path, java_script_enabled=False) as page:
        assert entry_shown_without_script(page) == ["L0H1", "L1H2", "L2H0", "L2H3"]
        text = page.inner_text("main")
        for said in ("+1: 50.0%", "8.250", "0 of 1,296", "not enough text", "Not shown", "a" * 64, "attention is no"):
            assert said in text, said
        assert page.locator("table a[href='#L2H0']").count() == 3, "in the grid, and in two tables"


def entry_shown_without_script(page: Any) -> list[str]:
    return [entry.get_attribute("id") for entry in page.locator("article.entry").all() if entry.is_visible()]


def test_print_keeps_what_matters(browser: Any, path: Path) -> None:
    with opened(browser, path) as page:
        page.emulate_media(media="print")
        assert page.is_visible("#grid") and not page.is_visible("#help") and page.is_visible("text=Named heads")
        assert page.pdf()[:4] == b"%PDF"


def test_the_page_of_an_older_or_poorer_atlas(content: dict[str, Any]) -> None:
    """Without ablation, profile, conditions, examples or nulls; nothing is invented."""
    keys = ("format", "model", "corpus", "passages", "documents", "max_tokens", "thresholds", "unseen")
    heads = [
        {
            **{key: head[key] for key in ("layer", "head", "names", "description")},
            "evidence": {
                name: {key: found[key] for key in ("strong", "confirmed", "numbers")}
                for name, found in head["evidence"].items()
            },
        }
        for head in content["heads"]
    ]
    html = atlas_page({**{key: content[key] for key in keys}, "heads": heads}, model="m")
    assert "--ablate" in html and "decoys were taken" not in html and 'class="profile"' not in html
    assert html.count("<article") == 12 and "https://" not in html


def test_of_a_distance_heads_are_compared_with_the_average_one(
    content: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A distance is never 0: no head is "worse" or "better", on the page and in the terminal."""
    ablation = {**content["ablation"], "measure": "1 - cosine of text vectors", "distance": True}
    html = atlas_page({**content, "ablation": ablation}, model="m").partition("<script")[0]
    assert "L0H1: next; more than the average head" in html and "L2H2: no name; less than the average head" in html
    assert "moves vectors more than the average head does" in html
    assert "worse without it" not in html and "better without it" not in html
    page_of_loss = atlas_page(content, model="m").partition("<script")[0]
    assert "L0H1: next; worse without it" in page_of_loss and "average head" not in page_of_loss
    change = np.array([[0.4, 0.1, 0.1]])
    heads = Importance(change, change - 0.05, change + 0.05, 0.2, None, 3.0)
    for is_distance, expected, others in ((True, "more", "worse"), (False, "worse", "more than")):
        found = Ablation("a measure", is_distance, "mean", 9, 8, None, heads, "no head is named for the same word")
        print_ablation(found)
        printed = "".join(capsys.readouterr())
        assert expected in printed and others not in printed
        assert ("more or less than the average head" in printed) == is_distance


def test_every_threshold_is_explained() -> None:
    assert {*Thresholds.__dataclass_fields__} <= {*THRESHOLDS}


# ---------------------------------------------------------------------- two models


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *(f"w{number}" for number in range(300))]
    backend = word_piece({piece: number for number, piece in enumerate(pieces)}, {"do_lower_case": True})
    return Tokenizer.from_json(json.loads(backend.to_str()), {})


@pytest.fixture(scope="module")
def documents() -> list[str]:
    rng = np.random.default_rng(0)
    return [
        " ".join(" ".join(f"w{word}" for word in rng.integers(0, 300, 9)).capitalize() + "." for _ in range(13))
        for _ in range(60)
    ]


def local_model(tokenizer: Tokenizer, order: list[int] | None = None) -> bertworks.Workbench:
    """Heads that look at neighbours; `order`: of the heads of the first layer."""
    model = bertworks.new("bert-mini", tokenizer=tokenizer, **SIZES)
    encoder: Any = model.model.encoder
    init_local_attention(encoder)
    if order is not None:
        attention = encoder.attentions[0].attn
        with torch.no_grad():
            for part in (attention.q, attention.k, attention.v):
                rows = torch.arange(64).view(4, 16)[order].flatten()
                part.weight.copy_(part.weight[rows].clone())
                part.bias.copy_(part.bias[rows].clone())
            attention.out.weight.copy_(attention.out.weight[:, rows].clone())
    return model


@pytest.fixture(scope="module")
def compared(tokenizer: Tokenizer, documents: list[str]) -> Comparison:
    return compare_heads(local_model(tokenizer), local_model(tokenizer, [2, 0, 3, 1]), documents, sentences=55)


def test_heads_in_another_order_are_found(compared: Comparison) -> None:
    """Their attention is the same; so are their names, in another place."""
    places = {match.head: match.other for match in compared.matches}
    assert {place: places[place] for place in places if place[0] == 0} == {
        (0, 0): (0, 1),
        (0, 1): (0, 3),
        (0, 2): (0, 0),
        (0, 3): (0, 2),
    }
    assert all(places[1, head] == (1, head) for head in range(4))
    assert all(match.overlap is not None and match.overlap > 0.9999 for match in compared.matches)
    assert len(compared.kept()) >= 6 and not compared.lost() and not compared.gained()
    content = compared.as_dict()
    assert content["matched_by"] == "attention" and content["texts"] == 60
    by_head = {tuple(match["head"]): match for match in content["matches"]}
    assert by_head[0, 0]["chance"] < 0.5, "from other words they look elsewhere"


def test_overlap_counts_only_what_is_alike() -> None:
    assert mutual_best(np.array([[0.9, 0.8], [0.95, 0.1]])) == [(1, 0)], "the first one's best has a better one"
    assert mutual_best(np.array([[0.1, 0.2, 0.9]])) == [(0, 2)]


def test_names_kept_lost_and_gained(content: dict[str, Any]) -> None:
    """By their place; what the other model cannot show is not lost."""
    changed = json.loads(json.dumps(content))
    by_place = {(head["layer"], head["head"]): head for head in changed["heads"]}
    by_place[0, 1]["names"] = []
    by_place[1, 2]["names"] = ["same", "cls"]
    by_place[2, 0]["names"] = ["same"]
    changed["unseen"] = {"related": "not enough text"}
    found = compare_atlases(content, changed)
    assert {(match.head, name) for match, name in found.lost()} == {((0, 1), "next")}
    assert {(match.head, name) for match, name in found.gained()} == {((1, 2), "cls")}
    assert {(match.head, name) for match, name in found.kept()} == {((1, 2), "same"), ((2, 0), "same"), ((2, 3), OWN)}
    assert found.counts()["related"] == (1, None) and not found.has_attention
    fewer = {**content, "heads": [head for head in content["heads"] if head["layer"] < 2]}
    assert compare_atlases(content, fewer).matches == () and compare_atlases(content, fewer).counts()["same"] == (2, 1)


def test_the_page_of_a_comparison(browser: Any, compared: Comparison, tmp_path: Path) -> None:
    page_path = compared.save(tmp_path / "c.html", models=(HOSTILE, "two"))
    with opened(browser, page_path) as page:
        assert "L0H0" in page.inner_text("main") and HOSTILE in page.inner_text("h1 [lang=en]")
    assert json.loads(compared.save(tmp_path / "c.json").read_text())["matches"]


def test_other_tokenizers_are_compared_by_words_or_refused(tokenizer: Tokenizer, documents: list[str]) -> None:
    """One that splits words into pieces finds the same words; one that knows none of them does not."""
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "w", *(f"##{digit}" for digit in range(10))]
    known += [f"w{number}" for number in range(100, 300)]
    backend = word_piece({piece: number for number, piece in enumerate(known)}, {"do_lower_case": True})
    pieces = Tokenizer.from_json(json.loads(backend.to_str()), {})
    other = bertworks.new("bert-mini", tokenizer=pieces, **{**SIZES, "n_positions": 512, "n_layers": 1})
    found = compare_heads(local_model(tokenizer), other, documents, sentences=20)
    assert found.n_other_words == 0 and found.overlaps is not None and found.overlaps.shape == (8, 4)
    assert 0 < found.overlaps.min() < found.overlaps.max() < 1
    short = bertworks.new("bert-mini", tokenizer=pieces, **{**SIZES, "n_positions": 48})
    with refused("no-passages"):
        compare_heads(local_model(tokenizer), short, [" ".join(["w1"] * 20 + ["w2."])] * 3, sentences=5)


# ---------------------------------------------------------------------- from the command line


@pytest.fixture(scope="module")
def saved(tokenizer: Tokenizer, documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    local_model(tokenizer).save(folder / "model")
    (folder / "corpus.txt").write_text("\n\n".join(documents))
    return folder


def test_atlas_and_comparison_from_the_command_line(saved: Path) -> None:
    model, corpus = str(saved / "model"), str(saved / "corpus.txt")
    options = ["--corpus", corpus, "--sentences", "20", "--device", "cpu"]
    page_path, json_path = saved / "a.html", saved / "a.json"
    run("atlas", model, *options, "--out", str(page_path), "--ablate", "--replacement", "zero")
    run("atlas", model, *options, "--out", str(json_path))
    assert page_path.read_text().startswith("<!DOCTYPE html>") and "1 - cosine" in page_path.read_text()
    assert "heads" in json.loads(json_path.read_text())
    by_names = json.loads(run("compare-heads", str(json_path), str(json_path), "--json").stdout)
    assert by_names["matched_by"] == "place" and len(by_names["matches"]) == 8 and not by_names["lost"]
    text = run("compare-heads", model, model, *options, "--out", str(saved / "c.html")).stdout
    assert "L1H3" in text and (saved / "c.html").is_file()
    assert refusal("compare-heads", model, model)["code"] == "missing-option"
    (saved / "empty.txt").write_text("\n")
    assert refusal("compare-heads", model, model, "--corpus", saved / "empty.txt")["code"] == "no-passages"
    (saved / "no.json").write_text('{"heads": 3}')
    assert refusal("compare-heads", saved / "no.json", json_path)["code"] == "not-an-atlas"


def test_the_atlas_of_another_model_is_refused(
    saved: Path, tokenizer: Tokenizer, documents: list[str], tmp_path: Path
) -> None:
    """One of the same size, too; in Python and from the command line."""
    model = bertworks.load(saved / "model")
    names = atlas(model, documents[:8], sentences=5).save(tmp_path / "a.json")
    model.attention("w1 w2.").save(tmp_path / "own.html", atlas=names)
    inspect = ["--text", "w1 w2.", "--atlas", str(names), "--out", str(tmp_path / "b.html")]
    run("inspect", saved / "model", *inspect)
    (tmp_path / "b.html").unlink()
    other = local_model(tokenizer, [2, 0, 3, 1])
    with refused("not-comparable", place="a.json"):
        other.attention("w1 w2.").save(tmp_path / "b.html", atlas=names)
    other.save(tmp_path / "other")
    error = refusal("inspect", tmp_path / "other", *inspect)
    assert error["code"] == "not-comparable" and "bertworks atlas" in error["what to do"]
    assert not (tmp_path / "b.html").exists()
    assert len(pickle.dumps(model.attention("w1."))) < 100_000, "without the model"


def test_in_python(tokenizer: Tokenizer, documents: list[str], tmp_path: Path) -> None:
    found: Atlas = atlas(local_model(tokenizer), documents, sentences=55, ablate=True)
    assert found.save(tmp_path / "a.html", model="mine").read_text().count("<article") == 8
    assert json.loads(found.save(tmp_path / "a.json").read_text())["ablation"]["replacement"] == "mean"
    assert found.compare(found).lost() == [] and set(found.examples) == {
        (row["layer"], row["head"]) for row in found.rows if row["names"]
    }
    pandas = pytest.importorskip("pandas")
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 8 and "importance" in frame
