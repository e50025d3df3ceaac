"""Runs as users make them: every family opens in transformers, models to go on from, settings, reports, the command
line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from rich.console import Console

import bertworks
from bertworks.cli.live import LiveView, duration, event_line, live_view, sparkline
from bertworks.config import PretrainConfig
from bertworks.data.loader import PretrainBatch
from bertworks.data.shards import Shards
from bertworks.errors import BadConfig, Unsupported
from bertworks.model.model import Model
from bertworks.model.resize import refit
from bertworks.page.html import bilingual
from bertworks.presets import FAMILY_RECIPES, PRESETS, preset, recipe
from bertworks.reports.masks import LABELS
from bertworks.runs.context import ProcessContext, RunContext
from bertworks.runs.pretrain import (
    HeldOutEvaluation,
    PretrainJob,
    log_frequencies,
    make_objective,
    pretrain,
)
from bertworks.runs.record import RunRecord
from bertworks.runs.settings import (
    PRETRAIN,
    option_settings,
    parse_duration,
    parse_settings,
    resolve_pretrain,
    setting_keys,
)
from bertworks.train.distributed import Distributed
from bertworks.train.events import Evaluated, NotSaved, Planned, Resumed, Saved, Skipped, Trained, last, read_events
from browsing import without_script
from commands import refusal, run, run_json
from refusals import refused
from test_objectives import albert_loss, bert_loss, gpt2_loss, roberta_loss, xlnet_loss
from texts import documents, make_shards
from training import TINY, events, language_shards, overridden, resume_run, train

STABLE_KEYS = {
    "optim.lr",
    "train.batch_tokens",
    "train.checkpoint_every",
    "train.seed",
    "data.max_length",
    "data.mask_rate",
    "model.n_positions",
}
GOLDEN = Path(__file__).with_name("golden") / "pretrain.json"
# preset, the class of transformers that opens it, and that class's loss on one of our batches
FAMILIES: dict[str, tuple[str, Any]] = {
    "bert-mini": ("BertForPreTraining", bert_loss),
    "roberta-mini": ("RobertaForMaskedLM", roberta_loss),
    "albert-mini": ("AlbertForPreTraining", albert_loss),
    "electra-mini": ("ElectraForPreTraining", None),
    "xlnet-mini": ("XLNetLMHeadModel", xlnet_loss),
    "gpt-mini": ("GPT2LMHeadModel", gpt2_loss),
    "distilbert-mini": ("DistilBertForMaskedLM", roberta_loss),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return language_shards(tmp_path_factory.mktemp("language"), 40)


@pytest.fixture(scope="module")
def trained_runs(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of every family, four steps each."""
    folder = tmp_path_factory.mktemp("runs")
    for name in FAMILIES:
        train(shards, folder / name, name, "train.evaluations=2", "train.log_every=1", steps=4)
    return folder


def held_out_batches(run: Path) -> tuple[Any, list[PretrainBatch]]:
    """The run's objective with the weights of its model folder, and its held-out batches."""
    record = RunRecord.read(run)
    shards = Shards(str(record.shards))
    config = PretrainConfig.model_validate(record.config)
    frequencies = log_frequencies(shards, config.model.encoder.vocab_size)
    objective = make_objective(config, bertworks.load(run), frequencies).eval()
    return objective, HeldOutEvaluation(objective, shards, config, Distributed(), frequencies).batches


@pytest.mark.parametrize("name", FAMILIES)
def test_a_run_opens_in_transformers(name: str, trained_runs: Path) -> None:
    cls, their_loss = FAMILIES[name]
    assert json.loads((trained_runs / name / "model" / "config.json").read_text())["architectures"] == [cls]
    theirs, report = getattr(transformers, cls).from_pretrained(trained_runs / name / "model", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    objective, batches = held_out_batches(trained_runs / name)
    theirs.eval()
    if their_loss is None:
        return  # ElectraForPreTraining is compared below
    counts = objective.counts(batches[0])
    with torch.no_grad():
        ours = sum(float(term.total) * term.weight / counts[term.name] for term in objective(batches[0]))
        expected = float(their_loss(theirs, batches[0]))
    assert ours == pytest.approx(expected, rel=1e-5)
    assert [event["step"] for event in events(trained_runs / name, "eval")] == [0, 2, 4]


def test_an_electra_run_saves_generator_and_discriminator(trained_runs: Path) -> None:
    folder = trained_runs / "electra-mini" / "model"
    discriminator = transformers.ElectraForPreTraining.from_pretrained(folder).eval()
    generator = transformers.ElectraForMaskedLM.from_pretrained(folder / "generator").eval()
    objective, batches = held_out_batches(trained_runs / "electra-mini")
    batch = batches[0]
    n_tokens = int(batch.lengths[0])
    layout = objective.tokens(batch).layout
    ids = torch.from_numpy(batch.ids)[None, :n_tokens]
    with torch.no_grad():
        generator_states, discriminator_states = (
            model.encoder(objective.tokens(batch)).last[:n_tokens] for model in (objective.generator, objective.model)
        )
        assert torch.allclose(
            objective.generator.read("lm", generator_states, layout), generator(input_ids=ids).logits[0], atol=1e-5
        )
        assert torch.allclose(
            objective.model.read("replaced", discriminator_states, layout),
            discriminator(input_ids=ids).logits[0],
            atol=1e-5,
        )
    assert torch.equal(
        discriminator.electra.embeddings.word_embeddings.weight, generator.electra.embeddings.word_embeddings.weight
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_fill_works_on_every_run(name: str, trained_runs: Path) -> None:
    bench = bertworks.load(trained_runs / name)
    if bench.config.encoder.causal:
        filled = bench.fill("Qz ak al", top_k=3)
        assert filled.independent.startswith("Qz ak al")
        assert len(filled.blanks) == 20
        assert len(filled.blanks[0]) == 3
    else:
        filled = bench.fill("Qz ak [MASK] am.", top_k=3)
        assert len(filled.blanks) == 1 and len(filled.blanks[0]) == 3
    assert "ak" in run("fill", "Qz ak [MASK] am.", "--model", trained_runs / name).stdout


def test_fill_without_a_head_says_how_to_train_one(tmp_path: Path, shards: Shards) -> None:
    folder = bertworks.new("bert-tiny", tokenizer=shards.tokenizer).save(tmp_path / "headless")
    with refused("missing-head", kind=Unsupported) as error:
        bertworks.load(folder).fill("ak [MASK]")
    assert all(part in str(error.value.remedy) for part in ("bertworks pretrain", "--model"))


def test_the_initial_loss_is_the_unigram_loss(trained_runs: Path) -> None:
    """A new head's bias is the token frequencies, so the first evaluation is about as good as a unigram model."""
    for name in ("bert-mini", "albert-mini", "xlnet-mini", "electra-mini"):
        started = events(trained_runs / name, "start")[0]
        evaluation = events(trained_runs / name, "eval")[0]
        assert evaluation["step"] == 0
        assert evaluation["metrics"]["loss"] == pytest.approx(started["unigram_loss"], abs=0.3)


# ---------------------------------------------------------------------- continuing from a model


def continue_pretraining(init: Path, shards: Shards, out: Path, *settings: str, objective: str | None = None) -> Path:
    bench = bertworks.load(init)
    config = resolve_pretrain(
        shards.tokenizer,
        init=bench,
        objective=objective,
        settings=parse_settings(settings, PRETRAIN, {"train.steps": 2}),
    )
    pretrain(PretrainJob(config, shards, str(init)), out, ProcessContext.library())
    return out


def test_the_lineage_has_the_whole_objective(shards: Shards, tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "n_heads": 2, "ffn_size": 128, "n_positions": 48}
    headless = bertworks.new("bert-tiny", tokenizer=shards.tokenizer, **sizes).save(tmp_path / "headless")
    out = continue_pretraining(headless, shards, tmp_path / "run", "train.evaluate_tokens=512", objective="mlm+nsp")
    bench = bertworks.load(out)
    assert bench.lineage[-2] == "pretrain mlm+nsp"
    run: Any = types.SimpleNamespace(record=types.SimpleNamespace(kind="pretrain"))
    assert RunContext.lineage(run, bench, "pretrain mlm+nsp") == [*bench.lineage, "pretrain mlm+nsp"]
    bench.lineage[:] = ["new bert-mini", "pretrain mlm"]
    assert RunContext.lineage(run, bench, "pretrain mlm+nsp") == bench.lineage, "a resumed run of an older version"


def test_pretraining_adds_a_missing_head(shards: Shards, tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "n_heads": 2, "ffn_size": 128, "n_positions": 48}
    headless = bertworks.new("bert-tiny", tokenizer=shards.tokenizer, **sizes).save(tmp_path / "headless")
    out = continue_pretraining(headless, shards, tmp_path / "run", "train.evaluate_tokens=512", objective="mlm")
    bench = bertworks.load(out)
    assert list(bench.model.heads) == ["lm"]
    assert bench.lineage[-2:] == ["pretrain mlm", f"loaded {out}"]
    old = bertworks.load(headless).model.state_dict()
    new = bench.model.state_dict()
    differences = {name: float((new[name] - old[name]).abs().max()) for name in old if name in new}
    assert 0 < max(differences.values()) < 0.05, "the old weights were loaded and trained"


def test_resume_does_not_need_the_initial_model(shards: Shards, tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "n_heads": 2, "ffn_size": 128, "n_positions": 48}
    initial = bertworks.new("bert-tiny", tokenizer=shards.tokenizer, **sizes).save(tmp_path / "begun")
    out = continue_pretraining(initial, shards, tmp_path / "run", "train.evaluate_tokens=512", objective="mlm")
    shutil.rmtree(initial)
    assert resume_run(out).signal == 0


def test_pretraining_continues_from_a_run(trained_runs: Path, shards: Shards, tmp_path: Path) -> None:
    out = continue_pretraining(
        trained_runs / "electra-mini", shards, tmp_path / "run", "train.evaluate_tokens=512", "data.max_length=48"
    )
    initial = bertworks.load(trained_runs / "electra-mini")
    evaluation = events(out, "eval")[0]
    assert evaluation["metrics"]["loss"] == pytest.approx(
        events(trained_runs / "electra-mini", "eval")[-1]["metrics"]["loss"], abs=0.4
    )
    assert bertworks.load(out).generator is not None and initial.generator is not None


def test_a_trained_head_has_a_lower_learning_rate_than_a_new_one(trained_runs: Path, shards: Shards) -> None:
    def default_lr(name: str, objective: str | None = None) -> float:
        return resolve_pretrain(
            shards.tokenizer, init=bertworks.load(trained_runs / name), objective=objective, settings={"train.steps": 1}
        ).optim.lr

    new_model_lr = resolve_pretrain(
        shards.tokenizer, preset="bert-mini", settings={"model.hidden_size": 64, "train.steps": 1}
    ).optim.lr
    assert default_lr("bert-mini") == default_lr("electra-mini") == pytest.approx(0.3 * new_model_lr)
    assert default_lr("bert-mini", "rtd") == default_lr("electra-mini", "mlm") == pytest.approx(new_model_lr)


def test_positions_are_interpolated(shards: Shards) -> None:
    config = preset("roberta-mini").override(
        vocab_size=50, hidden_size=16, n_heads=2, ffn_size=16, n_layers=1, n_positions=8, first_position=2
    )
    model = Model.fresh(config, ["lm"], seed=1)
    longer = refit(model, config.override(n_positions=15), ["lm"], seed=2)
    old, new = (each.encoder.embed.positions.weight.detach() for each in (model, longer))
    assert new.shape == (17, 16)
    assert torch.allclose(new[[0, 1, 2, 16]], old[[0, 1, 2, 9]]), (
        "rows before the first position, the first and the last position are unchanged"
    )
    assert torch.allclose(new[2::2], old[2:], atol=1e-6)
    assert torch.allclose(new[3::2], (old[2:-1] + old[3:]) / 2, atol=1e-6)
    shorter = refit(model, config.override(n_positions=5), ["lm"], seed=2)
    assert torch.equal(shorter.encoder.embed.positions.weight, old[:7])
    same = refit(model, config, ["lm"], seed=2)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), same.state_dict().values(), strict=True))


def test_new_segments_start_as_the_first(shards: Shards) -> None:
    config = preset("bert-tiny").override(vocab_size=50, n_layers=1)
    model = Model.fresh(config, seed=1)
    refitted = refit(model, config.override(n_segments=4), [], seed=2)
    old, new = (each.encoder.embed.segments.weight for each in (model, refitted))
    assert torch.equal(new[:2], old)
    assert torch.equal(new[2], old[0])
    assert torch.equal(new[3], old[0])


def test_the_shape_of_a_trained_model_cannot_change(trained_runs: Path, shards: Shards) -> None:
    with refused("cannot-change", kind=BadConfig) as error:
        resolve_pretrain(
            shards.tokenizer,
            init=bertworks.load(trained_runs / "bert-mini"),
            settings={"model.n_layers": 3, "train.steps": 1},
        )
    assert error.value.fields == ["model.n_layers"]  # type: ignore[attr-defined]


def test_another_tokenizer_is_refused(trained_runs: Path, tmp_path: Path) -> None:
    from texts import documents, make_shards

    other_shards = make_shards(tmp_path, documents(20))
    error = refusal("pretrain", other_shards.folder, "--model", trained_runs / "bert-mini", "--out", tmp_path / "run")
    assert error["code"] == "tokenizer-mismatch"


# ---------------------------------------------------------------------- settings


def test_every_setting_key_has_help() -> None:
    help_texts = setting_keys(PRETRAIN)
    assert all(help_texts.values())
    assert help_texts.keys() >= STABLE_KEYS
    help_page = run("pretrain", "--help").stdout
    for key in help_texts:
        assert key in help_page


@pytest.mark.parametrize(
    ("setting", "code", "suggestion"),
    [
        ("optim.lt=1", "unknown-key", "'optim.lr'"),
        ("optim.lr", "not-key-value", "optim.lr="),
        ("lr=1", "unknown-key", "'optim.lr'"),
        ("train.step=3", "unknown-key", "'train.steps'"),
    ],
)
def test_wrong_setting_keys_are_refused(setting: str, code: str, suggestion: str) -> None:
    with refused(code, kind=BadConfig) as error:
        parse_settings([setting], PRETRAIN)
    assert f"'{setting.partition('=')[0]}'" in error.value.cause
    assert suggestion in str(error.value.remedy)


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (["optim.lr=fast"], ["optim.lr"]),
        (["optim.lr=-1"], ["optim.lr"]),
        (["data.max_length=4096"], ["data.max_length", "model.n_positions"]),
        (["train.micro_tokens=64"], ["train.micro_tokens", "data.max_length"]),
        (["train.epochs=2"], ["train.steps", "train.epochs"]),
        (["data.masking=sentence"], ["data.masking"]),
        (["model.hidden_size=250"], ["hidden_size", "n_heads"]),
        (["data.pairs=sop", "objective.name=rtd"], ["objective.name", "data.pairs"]),
        (["objective.name=plm", "data.pairs=none"], ["objective.name", "model.attention"]),
        (["objective.name=ltr", "data.pairs=none"], ["objective.name", "model.causal"]),
        (["model.n_segments=1"], ["data.pairs", "model.n_segments"]),
    ],
)
def test_invalid_settings_are_refused(settings: list[str], fields: list[str], shards: Shards) -> None:
    with refused("bad-config", kind=BadConfig) as error:
        resolve_pretrain(
            shards.tokenizer, preset="bert-mini", settings=parse_settings(settings, PRETRAIN, {"train.steps": 1})
        )
    assert error.value.fields == fields  # type: ignore[attr-defined]


def test_the_bias_of_a_new_discriminator_is_the_mask_rate(shards: Shards) -> None:
    config = resolve_pretrain(
        shards.tokenizer, preset="electra-mini", settings=parse_settings(TINY, PRETRAIN, {"train.steps": 1})
    )
    frequencies = log_frequencies(shards, config.model.encoder.vocab_size)
    bias = make_objective(config, None, frequencies).model.heads["replaced"].out.bias
    assert float(torch.sigmoid(bias.detach())) == pytest.approx(config.data.mask_rate)


def test_only_new_models_start_with_local_attention(shards: Shards, tmp_path: Path) -> None:
    models = {}
    for init in ("local", "random"):
        config = resolve_pretrain(
            shards.tokenizer,
            preset="bert-mini",
            settings=parse_settings([*TINY, f"train.init={init}"], PRETRAIN, {"train.steps": 1}),
        )
        models[init] = make_objective(config, None, log_frequencies(shards, config.model.encoder.vocab_size)).model
    queries = {init: model.encoder.attentions[0].attn.q.weight.detach() for init, model in models.items()}
    assert float(queries["local"].abs().max()) > 1 > float(queries["random"].abs().max())
    train(shards, tmp_path / "run", "electra-mini", steps=1)
    trained = bertworks.load(tmp_path / "run")
    trained.generator = None  # a discriminator alone; its generator is new
    config = resolve_pretrain(
        shards.tokenizer, init=trained, objective="rtd", settings=parse_settings(TINY[4:], PRETRAIN, {"train.steps": 1})
    )
    before = trained.model.encoder.embed.positions.weight.clone()
    new_generator = make_objective(config, trained, log_frequencies(shards, config.model.encoder.vocab_size)).models()[
        "generator"
    ]
    assert torch.equal(new_generator.encoder.embed.positions.weight, before)
    assert float(new_generator.encoder.attentions[0].attn.q.weight.detach().abs().max()) < 1


def test_settings_without_effect_are_refused(shards: Shards) -> None:
    for settings, code, fields in (
        (["train.budget=60"], "bad-config", ["train.steps", "train.budget"]),
        (["train.steps=2"], "given-twice", ["train.steps"]),
        (["objective.generator_size=0.5"], "no-effect", ["objective.generator_size"]),
        (["optim.cooldown=0.5"], "no-effect", ["optim.cooldown"]),
        (["train.init=random", "model.positions=sinusoidal"], "no-effect", ["train.init"]),
        (["data.mask_rate=0"], "bad-config", ["objective.name", "data.mask_rate"]),
        (["model.vocab_size=5"], "vocabulary-too-large", ["model.vocab_size"]),
        (["train.budget=1e12"], "bad-config", ["train.budget"]),
        (["optim.lr=NaN"], "bad-config", ["optim.lr"]),
    ):
        with refused(code, kind=BadConfig) as error:
            resolve_pretrain(
                shards.tokenizer, preset="bert-mini", settings=parse_settings(settings, PRETRAIN, {"train.steps": 1})
            )
        assert error.value.fields == fields  # type: ignore[attr-defined]
    for preset_name, settings, masking, field in (
        ("gpt-mini", ["data.mask_rate=0.3"], None, "data.mask_rate"),
        ("gpt-mini", [], "word", "data.masking"),
        ("gpt-mini", ["data.short_seq_prob=0.5"], None, "data.short_seq_prob"),
        ("xlnet-mini", ["data.mask_share=0.5"], None, "data.mask_share"),
        ("xlnet-mini", ["data.random_share=0"], None, "data.random_share"),
        ("bert-mini", ["data.cross_documents=false"], None, "data.cross_documents"),
        ("albert-mini", ["data.cross_documents=false"], None, "data.cross_documents"),
        ("roberta-mini", ["data.pairs=stream", "data.short_seq_prob=0.5"], None, "data.short_seq_prob"),
    ):
        with refused("no-effect", kind=BadConfig) as error:
            resolve_pretrain(
                shards.tokenizer,
                preset=preset_name,
                settings=parse_settings(settings, PRETRAIN, option_settings(steps=1, masking=masking)),
            )
        assert error.value.fields == [field]  # type: ignore[attr-defined]
    assert resolve_pretrain(shards.tokenizer, preset="bert-mini", settings={"train.steps": 1}).train.dropout == 0.0
    assert (
        resolve_pretrain(
            shards.tokenizer, preset="bert-mini", settings={"model.dropout": 0.2, "train.steps": 1}
        ).train.dropout
        is None
    )
    assert resolve_pretrain(shards.tokenizer, preset="bert-mini", settings={}).train.budget == 600.0


def test_preset_or_model(shards: Shards) -> None:
    model = bertworks.new("bert-tiny", tokenizer=shards.tokenizer)
    for given, option in (({}, "--preset bert-mini"), ({"preset": "bert-mini", "init": model}, "--preset")):
        with refused("preset-or-model", kind=BadConfig) as error:
            resolve_pretrain(shards.tokenizer, settings={"train.steps": 1}, **given)
        assert option in error.value.remedy


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("1h30m", 5400), ("2d", 172800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10 minutes", "-3m", "1h-2m", "1h30", "1.5m2", "1" * 1000 + "x"])
def test_bad_durations_are_refused(text: str) -> None:
    with refused("bad-duration", kind=BadConfig):
        parse_duration(text)


def test_show_prints_the_resolved_config(shards: Shards) -> None:
    shown = json.loads(
        run(
            "pretrain", shards.folder, "--preset", "electra-mini", "--steps", "7", "--set", "optim.lr=1e-3", "--show"
        ).stdout
    )
    config = PretrainConfig.model_validate(shown)
    assert config.optim.lr == 1e-3
    assert config.train.steps == 7
    assert config.objective.name == "rtd"
    assert config.data.mask_share == 0.85
    assert config.model.encoder.vocab_size == shards.tokenizer.vocab_size
    by_default = json.loads(
        run("pretrain", shards.folder, "--preset", "bert-mini", "--masking", "word", "--show").stdout
    )
    assert by_default["train"]["budget"] == 600.0
    assert by_default["data"] | {"masking": "word", "pairs": "nsp"} == by_default["data"]


def test_every_preset_has_a_recipe(shards: Shards) -> None:
    for name in PRESETS:
        objective = FAMILY_RECIPES[preset(name).family]
        assert recipe(preset(name))["objective"]["name"] == objective.partition("+")[0]
        config = resolve_pretrain(shards.tokenizer, preset=name, settings={"train.steps": 1})
        assert config.objective.name == objective.partition("+")[0]
    assert recipe(preset("bert-base"))["optim"]["lr"] == 1e-4 < recipe(preset("bert-mini"))["optim"]["lr"]


def test_bert_can_be_trained_left_to_right(shards: Shards, tmp_path: Path) -> None:
    """The ablation of the paper: the same model, trained to predict the next token."""
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=0", objective="ltr", steps=1)
    assert bertworks.load(tmp_path / "run").config.encoder.causal


# ---------------------------------------------------------------------- what a run writes


def test_the_run_is_recorded(trained_runs: Path, shards: Shards) -> None:
    record = json.loads((trained_runs / "bert-mini" / "run.json").read_text())
    assert record["preset"] == "bert-mini"
    assert record["init"] is None
    assert record["environment"]["threads"] == 1
    assert record["data"]["tokens"] == shards.manifest.counts.tokens
    assert len(record["data"]["manifest"]) == 64
    steps = [event["step"] for event in events(trained_runs / "bert-mini", "train")]
    assert steps == [1, 2, 3, 4]
    last_event = events(trained_runs / "bert-mini", "train")[-1]
    for name in ("lr", "gradient_norm", "tokens_per_second", "mfu", "seconds_left", "progress"):
        assert isinstance(last_event[name], float), name
    for name in ("masked", "masked_accuracy", "pair"):
        assert isinstance(last_event["terms"][name], float), name


def test_the_report_is_self_contained(trained_runs: Path) -> None:
    for name in FAMILIES:
        page = without_script((trained_runs / name / "report.html").read_text())
        assert page.count('<figure class="curves">') >= 3 and "://" not in page and "<script" not in page
        assert 'lang="zh"' in page
        assert re.search("[\u4e00-\u9fff]{4}", page)
        assert "optim.lr" in page
        assert 'class="guess' in page
        assert json.loads((trained_runs / name / "run.json").read_text())["data"]["manifest"] in page


def test_the_report_has_the_figures_of_the_saved_model(trained_runs: Path, tmp_path: Path) -> None:
    """The best evaluation is not the last one here; the examples are predicted by the model of the last step."""
    run = tmp_path / "run"
    shutil.copytree(trained_runs / "bert-mini", run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line for line in lines if line["kind"] == "eval"]
    evaluated[-1]["metrics"] |= {"loss": 99.125, "masked": 99.125, "perplexity": 123456.7}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    resume_run(run)
    best = min(evaluated, key=lambda line: line["metrics"]["loss"])
    page = (run / "report.html").read_text()
    figures = re.search(r'<div class="figure-boxes .*', page)
    assert figures is not None and "99.125" not in figures[0] and "123,456.7" not in figures[0]
    assert f"<b>{best['metrics']['masked']:.3f}</b>" in figures[0] and "best held-out loss" in figures[0]
    assert f"the model of step {best['step']:,}" in page and "at the last step" in page


def shown_text(example: str) -> str:
    """The correct text of an example in a report, without tags, guesses and percentages."""
    return re.sub(r"<header>.*?</header>| <s>.*?</s>|<small>.*?</small>|<[^>]+>", "", example).replace(" .", ".")


def test_held_out_text_is_shown_in_words(tmp_path: Path) -> None:
    """Words are put together again from their pieces; a word that the vocabulary lacks is marked and counted."""
    texts = [re.sub(r"[.!?]", r" ☃\g<0>", text) for text in documents(120, seed=1)]
    shards = make_shards(tmp_path, texts)
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=1", objective="mlm", steps=1)
    page = (tmp_path / "run" / "report.html").read_text()
    examples = re.findall(r'<div class="example">(.*?)</div>', page)
    words = {word.strip(".!?") for text in texts for word in text.lower().split()} | {"[sep]", "[unk]", ""}
    # Without [CLS] and [SEP], and the last word, which may be cut.
    shown = [word.strip(".!?") for example in examples for word in shown_text(example).lower().split()[1:-2]]
    assert len(shown) > 30 and [word for word in shown if word not in words and not word.startswith("…")] == []
    n_unknown = page.count('class="unknown"')
    assert n_unknown and f"[UNK]: {n_unknown:,} of " in page and f"个词元中有 {n_unknown:,} 个" in page
    assert "<header>" not in page, "there are no pairs"


def test_the_report_shows_the_guess_for_the_pair(trained_runs: Path) -> None:
    page = (trained_runs / "bert-mini" / "report.html").read_text()
    headers = re.findall(r'<header><span class="guess (right|wrong)">(.*?)</span></header>', page)
    assert len(headers) == len(re.findall(r'<div class="example">', page)) > 0
    titles = [bilingual(*LABELS["nsp", label][1:]) for label in (0, 1)]
    for kind, guess in headers:
        assert re.search(r"<small>\d+%</small>$", guess) and any(guess.startswith(title) for title in titles)
        assert (kind == "wrong") == ("<s>" in guess)


def test_strange_names_are_escaped(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "<b>run&", "bert-mini", "train.evaluations=1", steps=1)
    page = (tmp_path / "<b>run&" / "report.html").read_text()
    assert "<b>run" not in page and "&lt;b&gt;run&amp;" in page


def test_epochs(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "run", "bert-mini", "train.batch_tokens=2048", "train.evaluations=0", epochs=2)
    saved = events(tmp_path / "run", "checkpoint")[-1]
    state = json.loads((tmp_path / "run" / "checkpoints" / saved["path"] / "state.json").read_text())
    assert (state["state"]["epoch"], state["state"]["batch"], state["state"]["progress"]) == (2, 0, 1.0)


def test_a_run_with_a_time_budget_plans_its_steps(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "run", "bert-mini", budget=6.0)
    assert events(tmp_path / "run", "plan")[0]["steps"] > 1
    rates = [event["lr"] for event in events(tmp_path / "run", "train")]
    assert rates and rates[-1] < max(rates)
    assert events(tmp_path / "run", "eval")[-1]["progress"] == 1.0


def test_no_held_out_text(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "run", "bert-mini", "data.held_out=0", steps=2)
    assert not events(tmp_path / "run", "eval")
    assert bertworks.load(tmp_path / "run").fill("ak [MASK]").blanks


def test_activation_recomputation_changes_nothing(shards: Shards, tmp_path: Path) -> None:
    for name, recompute in (("kept", "false"), ("again", "true")):
        for objective, preset_name in (("mlm+nsp", "bert-mini"), ("plm", "xlnet-mini")):
            settings = [f"train.recompute={recompute}", "train.dropout=0.1", "train.evaluations=0"]
            train(shards, tmp_path / f"{name}-{preset_name}", preset_name, *settings, objective=objective, steps=2)
    for preset_name in ("bert-mini", "xlnet-mini"):
        a, b = (bertworks.load(tmp_path / f"{name}-{preset_name}").model.state_dict() for name in ("kept", "again"))
        assert all(torch.allclose(a[key], b[key], atol=1e-6) for key in a)


def test_missing_devices_are_refused(shards: Shards, tmp_path: Path) -> None:
    for device in ("cuda:7", "gpu"):
        with refused("no-such-device", kind=Unsupported) as error:
            train(shards, tmp_path / device, "bert-mini", f"train.device={device}", steps=1)
        assert device in error.value.cause


def test_bfloat16(shards: Shards, tmp_path: Path) -> None:
    """With AVX2 only, since some processors announce newer instructions that then fail."""
    settings = [
        part
        for setting in overridden(*TINY, "train.precision=bfloat16", "train.log_every=1")
        for part in ("--set", setting)
    ]
    command = [
        sys.executable,
        "-m",
        "bertworks",
        "pretrain",
        str(shards.folder),
        "--preset",
        "electra-mini",
        "--steps",
        "3",
    ]
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    process = subprocess.run(
        [*command, *settings, "--out", str(tmp_path / "run")], capture_output=True, text=True, env=environment
    )
    assert process.returncode == 0, process.stderr
    exact = train(shards, tmp_path / "exact", "electra-mini", "train.log_every=1", steps=3).folder
    for bfloat16, float32 in zip(events(tmp_path / "run", "train"), events(exact, "train"), strict=True):
        assert bfloat16["terms"]["masked"] == pytest.approx(float32["terms"]["masked"], rel=0.02)
        assert bfloat16["terms"]["masked"] != float32["terms"]["masked"], "bfloat16 was used"
    assert bertworks.load(tmp_path / "run").model.encoder.embed.tokens.weight.dtype == torch.float32


def test_tensorboard_events(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fake writer: the package itself is not among our dependencies."""
    written: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert purge_step == 0 and folder == str(tmp_path / "run" / "tensorboard")

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            written.append(("closed", 0.0, 0))

    fake_module = types.ModuleType("torch.utils.tensorboard")
    fake_module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake_module)
    train(shards, tmp_path / "run", "bert-mini", "train.log_every=1", "train.evaluations=1", steps=2)
    names = {name for name, _, _ in written}
    assert {"train/masked", "train/lr", "eval/loss", "closed"} <= names
    assert [step for name, _, step in written if name == "train/masked"] == [1, 2]


def test_golden_curves(shards: Shards, tmp_path: Path) -> None:
    """Twenty steps of each family, 2 x 64, in float64: a change of the code that should change nothing changes none of
    these.

    WRITE_GOLDEN=1 pytest -k golden writes them again, after a change that is meant to change them.
    """
    torch.set_default_dtype(torch.float64)
    try:
        curves = {name: loss_curve(shards, tmp_path / name, name) for name in FAMILIES}
    finally:
        torch.set_default_dtype(torch.float32)
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(curves, indent=1) + "\n")
    expected = json.loads(GOLDEN.read_text())
    for name, losses in expected.items():
        assert curves[name] == pytest.approx(losses, rel=1e-6), name
        assert len(losses) == 20


def loss_curve(shards: Shards, out: Path, name: str) -> list[float]:
    train(shards, out, name, "train.log_every=1", "train.evaluations=0", "optim.lr=1e-3", steps=20)
    return [
        next(event["terms"][term] for term in ("masked", "permuted", "next") if term in event["terms"])
        for event in events(out, "train")
    ]


# ---------------------------------------------------------------------- the command line


def test_verify_resume(trained_runs: Path) -> None:
    uninterrupted, resumed = re.findall(
        r"\b[0-9a-f]{64}\b", run("verify-resume", trained_runs / "bert-mini", "--steps", "6").stdout
    )
    assert uninterrupted == resumed
    proof = run_json("verify-resume", trained_runs / "bert-mini", "--steps", "6", "--threads", "1", "--device", "cpu")
    assert proof["same"] and proof["resumed"] == proof["uninterrupted"] and proof["steps"] >= 6
    assert not list(trained_runs.glob(".verify*")), "nothing is left"


def test_verify_resume_sees_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """With processes that end differently, the command reports it and exits with 1."""
    from typer.testing import CliRunner

    from bertworks.cli.main import app
    from bertworks.runs import verify

    def different(run: Path, steps: int, **options: object) -> verify.ResumeProof:
        return verify.ResumeProof("aa", "bb", steps, steps // 2)

    monkeypatch.setattr(verify, "verify_resume", different)
    process = CliRunner().invoke(app, ["verify-resume", "anywhere"])
    assert process.exit_code == 1 and {"aa", "bb"} <= set(process.stdout.split())
    process = CliRunner().invoke(app, ["verify-resume", "anywhere", "--json"])
    assert process.exit_code == 1 and json.loads(process.stdout)["same"] is False


def test_folders_that_are_not_runs_are_refused(tmp_path: Path, shards: Shards) -> None:
    assert refusal("resume", tmp_path)["code"] == "not-a-run"
    missing_out = refusal("pretrain", shards.folder, "--preset", "bert-mini")
    assert missing_out["code"] == "missing-option" and "--out" in missing_out["what to do"]
    unknown_preset = refusal("pretrain", shards.folder, "--preset", "bert-mimi", "--out", tmp_path / "x")
    assert unknown_preset["code"] == "unknown-preset"
    assert "'bert-mini'" in unknown_preset["what to do"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert (
        refusal("pretrain", shards.folder, "--preset", "bert-mini", "--out", tmp_path / "full")["code"] == "not-empty"
    )


def test_a_log_has_a_line_for_each_evaluation_and_none_for_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with live_view(tmp_path) as show:
        for step in range(30):
            show(Planned(step=step, steps=1000 - step, seconds_per_step=0.1))
            show(Saved(step=step, path="checkpoint"))
            if step % 10 == 0:
                show(Evaluated(step=step, metrics={"masked": 3.0}))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(line.startswith(f"step {10 * n}") for n, line in enumerate(lines))


def test_the_live_view_shows_the_latest_numbers(trained_runs: Path) -> None:
    view = LiveView(trained_runs / "electra-mini")
    run_events = read_events(trained_runs / "electra-mini" / "metrics.jsonl")
    for event in run_events:
        view.update(replace(event, mfu=0.42) if isinstance(event, Trained) else event)
    screen = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    screen.print(view)
    text = screen.export_text()
    trained = last(run_events, Trained)
    evaluated = last(run_events, Evaluated)
    assert trained is not None and evaluated is not None
    numbers = [
        f"{trained.step:,}",
        "100%",
        f"{trained.terms['masked']:.3f}",
        f"{evaluated.metrics['replaced_auc']:.3f}",
    ]
    numbers += [f"{trained.tokens_per_second:,.0f}", "MFU 42%", duration(trained.seconds_left)]
    for part in ("masked", *numbers):
        assert part in text, part
    assert "full" in str(event_line(NotSaved(step=3, reason="full")))
    skipped = Skipped(step=3, loss=None, gradient_norm=None, epoch=41, batch=52, examples=[])
    assert {"41", "52"} <= set(re.findall(r"\d+", str(event_line(skipped))))
    assert "torch" in str(event_line(Resumed(step=3, differences=["torch"])))
    assert sparkline([3.0, 2.0, 1.0], 10) == "█▅▁" and sparkline([], 5) == ""
