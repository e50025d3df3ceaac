"""Words on a map: groups only where there are any, sentences drawn from a whole corpus, pages in a real browser."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertworks
from bertworks.datasets.example import Example
from bertworks.inspect import words
from bertworks.inspect.clusters import MIN_VECTORS, Clusters, find_clusters
from bertworks.inspect.contexts import find_contexts, word_pattern
from bertworks.inspect.marking import common_words, context_words, marking_words
from bertworks.inspect.planes import aligned_maps, neighbours_kept
from bertworks.inspect.word_map import WordMap
from bertworks.inspect.word_page import word_page as html_of
from bertworks.inspect.word_similarity import read_pairs, score_pairs, spearman_interval
from bertworks.measure.metrics import average_ranks, correlation
from bertworks.reports.embedding_map import MAX_CHARS, embedding_map
from bertworks.reports.page import write_report
from bertworks.tasks.evaluation import EvalResults
from bertworks.tasks.head_inputs import HeadInputs
from bertworks.tasks.inference import run_windows
from bertworks.tasks.task import Score
from bertworks.text.tokenizer import Tokenizer
from browsing import opened
from commands import run
from refusals import refused
from test_tasks import sliding_windows, small_task
from texts import tiny_tokenizer

SMALL = {"hidden_size": 32, "n_heads": 4, "n_layers": 2, "ffn_size": 48, "init_range": 0.3}
N = 200
D = 40


def bench(preset: str = "bert-mini", tokenizer: Tokenizer | None = None, **changes: Any) -> bertworks.Workbench:
    return bertworks.new(preset, tokenizer=tokenizer or tiny_tokenizer(), **{**SMALL, **changes})


def sentences(n: int, word: str = "bade") -> list[str]:
    rng = np.random.default_rng(0)
    syllables = ("ko", "lu", "mi", "no", "pe", "ra", "si", "tu")
    return [f"{' '.join(rng.choice(syllables, 5))} {word} {' '.join(rng.choice(syllables, 3))}." for _ in range(n)]


# ---------------------------------------------------------------------- groups


def stretched(rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float64]]:
    """One cloud, as long as those of words are: by length of the sentence, topic, and so on."""
    return rng.normal(size=(N, D)) * (1 + np.arange(D)) ** -0.7 + rng.normal(size=D)


@pytest.mark.parametrize("kind", ["gaussian", "heavy tails"])
def test_one_cloud_is_one_group(kind: str) -> None:
    """Against shuffled dimensions, each of these would have several."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        data = stretched(rng)
        if kind == "heavy tails":
            data /= np.sqrt(rng.chisquare(5, size=(N, 1)) / 5)
        found = find_clusters(data)
        assert found.n == 1 and found.sizes == [N]
        assert found.division is not None and not found.division.is_real


@pytest.mark.parametrize("k", [2, 3])
def test_planted_groups_are_found(k: int) -> None:
    rng = np.random.default_rng(0)
    centres = np.zeros((k, D))
    centres[np.arange(k), 5 + np.arange(k)] = 3.0
    owners = rng.choice(k, N, p=np.arange(k, 0, -1) / np.arange(k, 0, -1).sum())
    found = find_clusters(stretched(rng) + centres[owners])
    assert found.n == k
    assert found.sizes == sorted(found.sizes, reverse=True), "the largest first"
    agreement = sum(np.bincount(owners[found.labels == group]).max() for group in range(k)) / N
    assert agreement > 0.95
    division = found.division
    assert division is not None and division.null is not None and division.silhouette > division.null


def test_few_vectors_are_one_group() -> None:
    rng = np.random.default_rng(0)
    two = np.concatenate([rng.normal(size=(9, 4)) + 9, rng.normal(size=(9, 4)) - 9])
    assert len(two) < MIN_VECTORS and find_clusters(two).n == 1
    assert find_clusters(np.ones((50, 3))).n == 1, "all the same"


def test_groups_are_named_by_their_own_words() -> None:
    contexts = ["the river is at the bank and the water"] * 6 + ["the money is in the bank and the loan"] * 6
    labels = np.repeat([0, 1], 6)
    first, second = marking_words(contexts, labels, "bank", common={"the", "is", "and"})
    assert {*first} == {"river", "water", "at"} and {*second} == {"money", "loan", "in"}
    assert marking_words(contexts, labels * 0, "bank") == ((),)
    counts = dict.fromkeys((f"w{n}" for n in range(3000)), 5) | {"the": 900}
    assert common_words(Counter(counts)) == {"the"} and common_words(Counter("the the a".split())) == frozenset()
    assert context_words("Ba 中国人 de") == ["ba", "中国", "国人", "de"]


# ---------------------------------------------------------------------- maps


def test_layers_are_turned_towards_each_other() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 6)) * [5, 3, 1, 1, 1, 1]
    turned = vectors @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
    first, second = aligned_maps(np.stack([vectors, turned]), np.stack([vectors[0], turned[0]]))
    assert np.allclose(first.points, second.points), "only the axes were others"
    assert first.static is not None and np.allclose(first.static, first.points[0])
    spread = vectors - vectors.mean(0)
    total = np.linalg.eigvalsh(spread.T @ spread)
    assert first.variance == pytest.approx(total[-2:].sum() / total.sum())
    assert neighbours_kept(vectors[:, :2], vectors[:, :2]) == 1.0
    assert neighbours_kept(rng.normal(size=(300, 6)), rng.normal(size=(300, 2))) < 0.2


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_map_of_few_sentences(n: int) -> None:
    found = words(bench(), "bade", ["\n".join(sentences(n))])
    assert len(found.contexts) == n and all(layer.points.shape == (n, 2) for layer in found.maps)
    assert all(np.isfinite(layer.points).all() for layer in found.maps)
    assert all(clusters.n == 1 for clusters in found.clusters)


def test_vectors_are_those_of_the_word_less_the_mean_of_all_tokens() -> None:
    model = bench()
    texts = sentences(5)
    found = words(model, "bade", texts)
    assert found.pieces == ("ba", "de") and found.layer_vectors.shape == (3, 5, 32)
    states = [model.states(text, 1) for text in found.contexts]
    mean = np.concatenate(states).mean(0)
    for text, state, vector in zip(found.contexts, states, found.vectors(1), strict=True):
        pieces = model.tokenizer.pieces(text)
        at = pieces.pieces.index("ba")
        assert pieces.pieces[at + 1] == "##de"
        assert np.allclose(state[at : at + 2].mean(0) - mean, vector, atol=1e-5)
    table = model.model.encoder.token_table.detach().numpy()
    ids = [pieces.ids[at], pieces.ids[at + 1]]
    assert found.static_vectors is not None
    assert np.allclose(found.static_vectors[1], table[ids].mean(0) - mean, atol=1e-5)


def test_small_embeddings_are_projected() -> None:
    model = bench("albert-mini", embedding_size=24)
    found = words(model, "bade", sentences(4))
    encoder: Any = model.model.encoder
    ids = [model.tokenizer.pieces("bade").ids[at] for at in (1, 2)]
    with torch.no_grad():
        projected = encoder.project(encoder.token_table[ids].mean(0)).numpy()
    assert found.static_vectors is not None
    assert np.allclose(found.static_vectors[0] - found.static_vectors[1], _difference(model, found), atol=1e-5)
    assert projected.shape == (32,) and found.maps[0].static is not None


def _difference(model: bertworks.Workbench, found: WordMap) -> Any:
    """Of the means of all tokens in two layers: what is left of two centred vectors."""
    means = [np.concatenate([model.states(text, layer) for text in found.contexts]).mean(0) for layer in (0, 1)]
    return means[1] - means[0]


@pytest.mark.parametrize("preset", ["roberta-mini", "xlnet-mini", "gpt-mini", "distilbert-mini", "electra-mini"])
def test_every_family_has_a_map(preset: str) -> None:
    changes = {"embedding_size": 24} if preset == "electra-mini" else {}
    found = words(bench(preset, **changes), "bade", sentences(4))
    assert len(found.contexts) == 4 and found.maps[-1].static is not None


# ---------------------------------------------------------------------- sentences


def test_the_draw_does_not_depend_on_the_order_of_the_corpus() -> None:
    tokenizer = tiny_tokenizer()
    texts = sentences(60)
    found = find_contexts(tokenizer, 64, "bade", texts, 10)
    again = find_contexts(tokenizer, 64, "bade", [*reversed(texts), *texts], 10)
    assert [context.text for context in found.contexts] == [context.text for context in again.contexts]
    assert len(found.contexts) == 10 and (found.n_sentences, again.n_sentences) == (60, 120)
    positions = [texts.index(context.text) for context in found.contexts]
    assert max(positions) > 30, "not the beginning"


def test_sentences_that_the_model_cannot_read_are_counted(tmp_path: Path) -> None:
    """Those that were drawn, each of them once, in any order of the corpus."""
    tokenizer = tiny_tokenizer()
    too_long = [f"{text[:-1]} {'ko ' * 60}." for text in sentences(30)]
    texts = [*sentences(30), *too_long]
    counts = [
        find_contexts(tokenizer, 64, "bade", order, n).n_unread
        for n in (10, 40)
        for order in (texts, [*reversed(texts)], texts * 2)
    ]
    assert 0 < counts[0] == counts[1] == counts[2] < 30 and counts[3:] == [30] * 3
    bench(n_positions=64).save(tmp_path / "model")
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    command = ["words", tmp_path / "model", "bade", "--corpus", tmp_path / "text.txt", "--out", tmp_path / "page.html"]
    assert "30 left out: too long for the model" in run(*command).stderr
    assert json.loads(run(*command, "--json").stdout)["unread"] == 30
    assert "left out: 30, too long" in (tmp_path / "page.html").read_text()


def test_what_is_skipped_in_a_corpus_is_said(tmp_path: Path) -> None:
    bench().save(tmp_path / "model")
    rows = [json.dumps({"text": text}) for text in sentences(3)]
    (tmp_path / "rows.jsonl").write_text("\n".join([*rows, "{"]))
    done = run("words", tmp_path / "model", "bade", "--corpus", tmp_path / "rows.jsonl", "--skip-bad")
    assert "skipped 1 invalid row" in done.stderr and "rows.jsonl: 'text'" in done.stderr


def test_a_word_is_not_a_part_of_another() -> None:
    tokenizer = tiny_tokenizer()
    texts = ["Rabade ko lu.", "Badera no.", "Si bade, tu.", "BADE ko!", "bade-ra no"]
    found = find_contexts(tokenizer, 64, " bade ", texts, 10)
    assert {context.text for context in found.contexts} == {*texts[2:]}
    for context in found.contexts:
        assert context.text[context.start : context.end].lower() == "bade"
        assert [tokenizer.readable(id) for id in context.ids] == ["ba", "de"]
    assert word_pattern("中国").search("在中国人") and not word_pattern("ban").search("bank")


@pytest.mark.parametrize(
    ("word", "texts", "code"),
    [
        ("bade", ["ko lu mi.", "rabade"], "no-such-word"),
        ("bade", ["bade " * 80], "no-such-word"),
        ("bade", [], "no-text"),
        ("bade", ["", " \n "], "no-text"),
        ("  ", ["bade"], "empty-text"),
    ],
)
def test_a_word_that_cannot_be_shown(word: str, texts: list[str], code: str) -> None:
    with refused(code):
        words(bench(n_positions=64), word, texts)


@pytest.mark.parametrize("word", ["</script>", "<!--", "&amp;", "]]>"])
def test_hostile_words_stay_text(word: str) -> None:
    found = words(bench(), word, [f"ba {word} <b>de</b> ku", f"go {word} lu"])
    assert [found.contexts[at][start:end] for at, (start, end) in enumerate(found.spans)] == [word, word]
    html = page_of(found)
    assert html.count("</script>") == html.count("<script"), "each is ours"
    assert "<b>de" not in html and "&lt;b&gt;de" in html


def page_of(found: WordMap) -> str:
    return html_of(found, model="<m>")


def test_chinese_words_of_several_characters(shared: Path) -> None:
    tokenizer = Tokenizer.load(shared / "vocab" / "bert-base-chinese")
    texts = (shared / "corpora/zh/peoples_daily_199801.txt").read_text("utf-8").splitlines()[:400]
    found = words(bench(tokenizer=tokenizer), "经济", texts)
    assert len(found.pieces) == 2 and len(found.contexts) > 20
    assert all(text[start:end] == "经济" for text, (start, end) in zip(found.contexts, found.spans, strict=True))
    assert not found.is_unknown


def test_the_same_input_gives_the_same_bytes() -> None:
    texts = sentences(30)
    first, second = (json.dumps(words(bench(), "bade", texts, sentences=25).as_dict()) for _ in range(2))
    assert first == second
    content = json.loads(first)
    assert content["sentences"] == 25 and content["sentences_in_corpus"] == 30
    assert len(content["layers"]) == 3 and len(content["layers"][2]["points"]) == 25
    assert [division["k"] for division in content["layers"][2]["tried"]] == [2, 3, 4, 5, 6]


# ---------------------------------------------------------------------- similarity


def test_word_similarity_against_planted_vectors(tmp_path: Path) -> None:
    """The angle to the first word decides: the order of the judgements is that of the cosines."""
    model = bench()
    names = ["ba", "de", "ku", "mi", "no", "pe"]
    ids = [model.tokenizer.pieces(name).ids[1] for name in names]
    table = model.model.encoder.token_table
    with torch.no_grad():
        table[ids] = 0.0
        for at, id in enumerate(ids):
            table[id, 0], table[id, 1] = np.cos(at), np.sin(at)
    file = tmp_path / "pairs.tsv"
    angles = {(a, b): np.cos(a - b) for a in range(6) for b in range(a)}
    file.write_text("# a remark\n\n" + "".join(f"{names[a]}\t{names[b]}\t{v:.4f}\n" for (a, b), v in angles.items()))
    pairs = read_pairs(file)
    found = score_pairs(model, pairs)
    assert [score.vectors for score in found.scores] == ["static", "0", "1", "2"]
    assert found.scores[0].spearman > 0.9 and found.scores[0].n_pairs == 15 and found.n_left_out == 0
    assert found.scores[0].low < found.scores[0].spearman <= found.scores[0].high
    part = score_pairs(model, pairs, ["ba de. ku mi.", "No ba!", "De ku mi ba."])
    assert part.n_left_out == 5 and part.scores[0].n_pairs == 10, "one word does not occur"
    with refused("too-few-pairs"):
        score_pairs(model, pairs, ["ba de"])


def test_pairs_of_words_of_any_length_are_found_in_texts(shared: Path) -> None:
    """Chinese ones of one character and of three and more, and words with a hyphen."""
    model = bench(tokenizer=Tokenizer.load(shared / "vocab" / "bert-base-chinese"))
    pairs = [
        ("人", "共和国", 1.0),
        ("人民", "共和国", 2.0),
        ("中国共产党", "人", 3.0),
        ("e-mail", "t恤", 4.0),
        ("无", "人", 5.0),
    ]
    texts = ["中国共产党和共和国的人民。", "一个人写 E-mail。他有T恤。", "email and 共和"]
    found = score_pairs(model, pairs, texts)
    assert found.n_left_out == 1 and found.n_contexts == 7


def test_the_interval_of_a_correlation() -> None:
    """Of many samples from a known one, 95 % hold it."""
    rng = np.random.default_rng(0)
    true = 6 / np.pi * np.arcsin(0.6 / 2)  # Spearman's of a Gaussian with 0.6
    held = 0
    for _ in range(400):
        a, b = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=80).T
        value = correlation(average_ranks(a), average_ranks(b))
        low, high = spearman_interval(value, 80)
        held += low <= true <= high
    assert 0.92 < held / 400 < 0.98


@pytest.mark.parametrize(
    ("content", "code"), [("ba de\n", "bad-pair"), ("ba de x\n", "bad-pair"), ("", "too-few-pairs")]
)
def test_files_that_are_no_pairs(content: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text(content)
    with refused(code, place="pairs.txt"):
        read_pairs(tmp_path / "pairs.txt")


def test_commands(tmp_path: Path) -> None:
    bench().save(tmp_path / "model")
    corpus = tmp_path / "text.txt"
    corpus.write_text("\n\n".join(sentences(25)))
    model = str(tmp_path / "model")
    done = run("words", model, "bade", "--corpus", str(corpus), "--out", str(tmp_path / "page.html"), "--json")
    assert json.loads(done.stdout)["sentences"] == 25 and (tmp_path / "page.html").is_file()
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("ko lu 1\nmi no 2\npe ra 3\nsi tu 4\nko xx 5\n")
    scored = json.loads(run("similar", model, "--pairs", pairs, "--corpus", corpus, "--json").stdout)
    assert scored["pairs_left_out"] == 1 and [row["vectors"] for row in scored["scores"]] == ["static", "0", "1", "2"]
    cosines = json.loads(run("similar", model, "ba de", "ku", "--json").stdout)["cosines"]
    assert np.allclose(np.diag(cosines), 1, atol=1e-5)
    for arguments, code in (
        ((), "missing-argument"),
        (("ba",), "missing-argument"),
        (("ba", ""), "empty-text"),
        (("ba", "de", "--pairs", str(pairs)), "given-twice"),
        (("--pairs", str(tmp_path / "nowhere")), "missing-file"),
    ):
        refusal = run("similar", model, *arguments, "--json", code=2)
        assert json.loads(refusal.stdout or refusal.stderr)["error"]["code"] == code


# ---------------------------------------------------------------------- pages


@pytest.fixture(scope="module")
def word_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups in the last layer, planted."""
    found = words(bench(), "bade", sentences(40))
    labels = np.arange(40) % 4 // 3
    planted = Clusters(labels, tuple(replace(tried, null=0.0) for tried in found.clusters[2].divisions))
    found = replace(
        found,
        clusters=(*found.clusters[:2], planted),
        group_words=(*found.group_words[:2], (("ko", "<lu>"), ("mi",))),
    )
    return found.save(tmp_path_factory.mktemp("page") / "words.html", model="a <model>")


def ready(page: Any, value: str = "") -> None:
    page.wait_for_selector(f'body[data-ready="{value}"]' if value else "body[data-ready]")


def test_a_word_page_by_mouse_and_keyboard(browser: Any, word_page: Path) -> None:
    with opened(browser, word_page) as page:
        ready(page, "2")
        assert page.locator(".scatter .point").count() == 40 and page.locator(".star").count() == 1
        shapes = page.locator(".scatter .point path").evaluate_all(
            "(all) => new Set(all.map((one) => one.getAttribute('d'))).size"
        )
        assert shapes == 2, "colour is not the only sign"
        sentences_shown = page.locator("#contexts li").all_text_contents()
        page.locator('.point[data-at="7"]').dispatch_event("click")
        assert page.locator(".shown").text_content() == sentences_shown[7]
        assert page.locator("#contexts li.chosen").text_content() == sentences_shown[7]
        page.locator("svg.scatter").focus()
        page.keyboard.press("Home")
        assert page.locator(".shown").text_content() == sentences_shown[0]
        page.keyboard.press("PageDown")
        assert page.locator(".shown").text_content() == sentences_shown[1]
        before = page.locator(".point.chosen").get_attribute("data-at")
        for key in ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"):
            page.keyboard.press(key)
        assert page.locator(".point.chosen").count() == 1 and before is not None
        page.keyboard.press("Escape")
        assert page.locator(".shown").text_content() == "" and page.locator(".point.chosen").count() == 0
        page.locator(".groups button").nth(1).click()
        assert page.locator(".point.faded").count() == 30 and page.locator("#contexts li:visible").count() == 10
        page.locator("#layer").focus()
        page.keyboard.press("ArrowLeft")
        ready(page, "1")
        assert page.locator(".groups button").count() == 0 and page.locator(".point.faded").count() == 0
        assert page.evaluate("location.hash") == "#L1"


def test_points_are_where_their_numbers_are(browser: Any, word_page: Path) -> None:
    """Distances on the screen are those of the map, by one scale."""
    found = words(bench(), "bade", sentences(40)).maps[2].points
    with opened(browser, word_page, reduced_motion="reduce") as page:
        ready(page, "2")
        places = page.locator(".scatter .point").evaluate_all(
            "(all) => all.sort((a, b) => a.dataset.at - b.dataset.at).map((one) => one.style.transform)"
        )
    drawn = np.array([[float(value) for value in re.findall(r"-?[\d.]+(?=px)", place)] for place in places])
    ratios = np.linalg.norm(drawn[1:] - drawn[0], axis=1) / np.linalg.norm(found[1:] - found[0], axis=1)
    assert ratios.std() / ratios.mean() < 0.02


def test_a_word_page_in_both_languages_and_without_a_script(browser: Any, word_page: Path) -> None:
    with opened(browser, word_page, color_scheme="dark") as page:
        ready(page)
        english = page.locator("#view").inner_text()
        page.locator("#zh").focus()
        page.keyboard.press("Space")
        chinese = page.locator("#view").inner_text()
        assert "2 groups" in english and "2 组" in chinese and "groups" not in chinese
        assert re.search("[\u4e00-\u9fff]", page.locator("svg.scatter").get_attribute("aria-label"))
        assert page.locator("body").evaluate("(body) => getComputedStyle(body).backgroundColor") != "rgb(255, 255, 255)"
        page.emulate_media(media="print")
        assert page.locator("svg.scatter").is_visible() and not page.locator("#controls").is_visible()
    with opened(browser, word_page, java_script_enabled=False) as page:
        assert page.locator("#contexts li").count() == 40
        assert "ko, <lu>" in page.locator("#layers").inner_text() and "2 groups" in page.locator("#layers").inner_text()


def test_a_page_of_one_sentence(browser: Any, tmp_path: Path) -> None:
    path = words(bench(), "</script>", ["ba </script> de"]).save(tmp_path / "one.html")
    with opened(browser, path) as page:
        ready(page)
        page.locator("svg.scatter").focus()
        page.keyboard.press("ArrowDown")
        assert page.locator(".shown").text_content() == "ba </script> de"


# ---------------------------------------------------------------------- dev examples of a fine-tuning


class AnyTask:
    """Shows texts as they are."""

    @staticmethod
    def shown_texts(example: Example) -> tuple[str, ...]:
        return example.texts


def example_results(n: int = 60, *, numbers: bool = False) -> EvalResults:
    rng = np.random.default_rng(0)
    labels = ["<a>", "b", "c"]
    scored = []
    for at in range(n):
        example = Example(
            texts=(f"text {at} </script><i> " + "x" * (400 if at == 0 else 0),), place=f"f.csv, line {at}"
        )
        if numbers:
            score = Score((at / n, at / n + 0.1), True, 0.01 * at, f"{at / n:.2f}", "0.5")
        else:
            expected, predicted = labels[at % 3], labels[at % 3 if at % 10 else 1]
            items = frozenset({(expected, None)})
            score = Score((0, 0), expected != predicted, 0.5, expected, predicted, expected_items=items)
        scored.append((example, score))
    classes: Any = {} if numbers else dict.fromkeys(labels)
    vectors = rng.normal(size=(n, 8)) + 3 * np.eye(8)[np.arange(n) % 3]
    table = np.zeros((3 * n, 2))
    return EvalResults({}, {}, classes=classes, head_inputs=vectors, scored=scored, example_scores=table)


@pytest.fixture(scope="module")
def map_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    body = embedding_map(example_results(), AnyTask())  # type: ignore[arg-type]
    return write_report(tmp_path_factory.mktemp("map") / "report.html", ("Report", "报告"), body)


def test_the_map_of_dev_shows_texts_and_errors(browser: Any, map_page: Path) -> None:
    wrong = [at for at, (_, score) in enumerate(example_results().scored) if score.is_wrong]
    with opened(browser, map_page) as page:
        ready(page)
        assert page.locator("#embedding-map .point").count() == 60
        ringed = page.locator(".point:has(.ring)").evaluate_all("(all) => all.map((one) => Number(one.dataset.at))")
        assert sorted(ringed) == wrong and len(wrong) > 2
        page.locator(f'.point[data-at="{wrong[0]}"]').dispatch_event("click")
        shown = page.locator("#embedding-map .shown").inner_text()
        assert "text 0 </script><i>" in shown and "…" in shown and len(shown) < MAX_CHARS + 150
        assert "expected <a>, predicted b" in shown
        assert page.locator("#embedding-map .groups button").count() == 3
        page.locator("#embedding-map svg.scatter").focus()
        page.keyboard.press("End")
        assert "text 59" in page.locator("#embedding-map .shown").inner_text()
        page.locator("#zh").focus()
        page.keyboard.press("Space")
        assert "标注：c，预测：c" in page.locator("#embedding-map .shown").inner_text()
        assert "随机抽取 60 个" in page.locator("#embedding-map").inner_text()
    with opened(browser, map_page, java_script_enabled=False) as page:
        assert page.locator(".map-examples li").count() == 60 and page.locator(".map-groups li").count() == 3


def test_numbers_are_in_intervals_and_the_worst_are_marked() -> None:
    html = "".join(embedding_map(example_results(numbers=True), AnyTask()))  # type: ignore[arg-type]
    groups = [int(group) for group in re.findall(r'data-group="(\d)"', html)]
    assert [groups.count(group) for group in range(5)] == [12] * 5
    assert html.count("data-marked") == 6
    assert "</script>" not in html and "<i>" not in html
    assert embedding_map(replace(example_results(), head_inputs=None), AnyTask()) == []  # type: ignore[arg-type]


def test_what_the_head_reads_is_recorded_in_the_same_run() -> None:
    """Of the drawn examples, the mean over windows of the head's input; logits are the same to the bit."""
    task = small_task("bert-mini", "classify").eval()
    examples = [Example(texts=(text,), answer="high") for text in [*sentences(6), "ba " * 90]]
    features = task.features(examples, sliding_windows(32))
    recorded = HeadInputs.of(task, len(examples))
    assert recorded is not None
    with_vectors = run_windows(task, features, head_inputs=recorded)
    without = run_windows(task, features)
    assert all(
        np.array_equal(a, b) for x, y in zip(with_vectors, without, strict=True) for a, b in zip(x, y, strict=True)
    )
    head: Any = task.model.heads["sequence"]
    with torch.no_grad():
        for at, outputs in enumerate(with_vectors):
            mean = head.out(torch.from_numpy(recorded.vectors[at]).float()).numpy()
            assert np.allclose(mean, np.concatenate(outputs).mean(0), atol=1e-5), at
    assert len(with_vectors[-1]) > 1 and not head._forward_pre_hooks
