"""Run folders: a tiny model is trained by the command line, opened here, and must say the same as the command line.

Needs the binary: `$WHATWHERE_BINARY`, or `target/release/whatwhere` of the workspace.
"""

import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import whatwhere
from whatwhere import _native

ROOT = Path(__file__).parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = Path(os.environ.get("WHATWHERE_BINARY", TARGET / "release" / "whatwhere"))
PROMPT = "the cat and "


def test_a_build_without_models_says_what_is_missing(monkeypatch):
    monkeypatch.delattr(_native, "Model", raising=False)
    with pytest.raises(ImportError, match="cargo feature `models`"):
        whatwhere.load("runs/none")


models = pytest.mark.skipif(not hasattr(_native, "Model"), reason="built without the cargo feature `models`")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if not BINARY.exists():
        pytest.skip(f"there is no {BINARY.name} to train a model with; `cargo build --release` makes it")
    folder = tmp_path_factory.mktemp("run")
    text = folder / "text.txt"
    text.write_text("the cat and the dog and the bird and the fish. " * 400)
    settings = folder / "tiny.toml"
    settings.write_text(
        f"""
        [data]
        tokenizer = "characters"
        source = {{ kind = "text", path = {json.dumps(str(text))} }}
        [model]
        width = 32
        layers = 2
        [model.attention]
        heads = 4
        kv_heads = 2
        position = ["rotary", "shaw"]
        pattern = {{ kind = "window", left = 9 }}
        [training]
        steps = 60
        batch = 8
        length = 32
        lr = 5e-3
        evaluate_every = 30
        """
    )
    run([BINARY, "train", settings, "--out", folder / "run"])
    return folder / "run"


def run(command, given=""):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, input=given)
    assert done.returncode == 0, done.stderr
    return done.stdout


@models
def test_generating_says_what_the_command_line_says(folder):
    model = whatwhere.load(folder)
    assert model.step > 0
    assert model.settings["model"]["attention"]["pattern"]["left"] == 9
    ours = model.generate(PROMPT, limit=30, temperature=0.7, seed=3)
    theirs = run([BINARY, "generate", folder, PROMPT, "--tokens", 30, "--temperature", 0.7, "--seed", 3])
    assert ours.strip() and ours.strip() in theirs
    assert model.generate(PROMPT, limit=30, temperature=0.7, seed=3) == ours
    assert len(model.tokens(model.generate(PROMPT, limit=5, temperature=0.0))) == 5


@models
def test_scores_are_log_probabilities_of_what_was_learned(folder):
    model = whatwhere.load(folder)
    text = "the cat and the dog"
    scored = model.score(text)
    assert [token for token, _ in scored] == model.tokens(text)[1:]
    assert all(log <= 0 for _, log in scored)
    mean = sum(log for _, log in scored) / len(scored)
    unlike = model.score("tac eht dna god eht")
    assert mean > sum(log for _, log in unlike) / len(unlike) > -math.inf


@models
def test_logits_of_ids_are_those_behind_the_scores_and_of_the_command_line(folder):
    model = whatwhere.load(folder)
    ids = [[3, 1, 4, 1, 5], [2, 0, 2, 0, 1]]
    logits = model.logits(ids)
    assert logits.shape[:2] == (2, 5) and logits.dtype == np.float32
    np.testing.assert_array_equal(logits, model.logits(np.array(ids)))
    lines = "".join(" ".join(map(str, row)) + "\n" for row in ids)
    said = subprocess.run([BINARY, "logits", folder, "--json"], input=lines, capture_output=True, text=True, check=True)
    rows = [json.loads(line)["logits"] for line in said.stdout.splitlines()]
    np.testing.assert_allclose(np.array(rows), logits, atol=1e-5)
    for ids, message in [([[99999]], "outside the vocabulary"), ([1, 2], "shape"), ([[-1]], "from -1"), ([[0.5]], "whole")]:
        with pytest.raises(ValueError, match=message):
            model.logits(ids)
    with pytest.raises(ValueError, match="one stack"):
        model.logits([[1]], [[1]])


@models
def test_attention_weights_are_those_of_the_pattern_and_sum_to_one(folder):
    model = whatwhere.load(folder)
    text = "the cat and the dog"
    for layer in range(2):
        weights = model.attention_weights(text, layer)
        assert weights.shape == (4, 19, 19) and weights.dtype == np.float32
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
        query, key = np.arange(19)[:, None], np.arange(19)
        assert ((weights > 0) == ((key <= query) & (key >= query - 9))).all()
    assert not np.allclose(model.attention_weights(text, 0), model.attention_weights(text, 1))


@models
def test_heads_are_measured_as_the_command_line_measures_them(folder, tmp_path):
    model = whatwhere.load(folder)
    text = "the cat and the dog and the bird"
    ours = model.heads(text)
    theirs = json.loads(run([BINARY, "show", "heads", folder, "--text", text, "--out", tmp_path, "--json"]))
    assert ours["heads"] == theirs["heads"] and ours["pruning"] == theirs["pruning"]
    assert len(ours["heads"]) == 8 and len(ours["pruning"]) == 9
    weights = model.attention_weights(text, 1)[2]
    previous = np.mean([weights[query, query - 1] for query in range(1, len(text))])
    head = ours["heads"][6]
    assert (head["layer"], head["head"]) == (1, 2)
    assert abs(head["previous"]["weight"] - previous) < 1e-5
    plain = model.heads(text, ablation=False)
    assert plain["heads"][0]["loss_without"] is None and "pruning" not in plain


@models
def test_what_cannot_be_opened_or_asked_is_refused(folder, tmp_path):
    with pytest.raises(ValueError):
        whatwhere.load(tmp_path / "nothing")
    model = whatwhere.load(folder)
    for call, message in [
        (lambda: model.attention_weights("the", 2), "found layer 2, expected 0 to 1"),
        (lambda: model.attention_weights("the", -1), "layer = -1"),
        (lambda: model.attention_weights(""), "found no tokens"),
        (lambda: model.heads(""), "no tokens"),
        (lambda: model.heads("the", "le"), "only an encoder-decoder"),
        (lambda: model.score("t"), "expected at least 2"),
        (lambda: model.generate("the", temprature=1.0), "unknown field `temprature`"),
        (lambda: model.generate("the", temperature=-1.0), "temperature = -1: expected 0 or more"),
        (lambda: model.generate("the", limit=-1), "limit = -1"),
    ]:
        with pytest.raises(ValueError) as refusal:
            call()
        assert message in str(refusal.value)


def trained(parent, settings):
    """A run folder of these settings."""
    if not BINARY.exists():
        pytest.skip(f"there is no {BINARY.name} to train a model with; `cargo build --release` makes it")
    (parent / "settings.toml").write_text(settings)
    run([BINARY, "train", parent / "settings.toml", "--out", parent / "run"])
    return parent / "run"


@models
def test_an_encoder_fills_blanks_as_the_command_line_does(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat and the dog and the bird and the fish. " * 400)
    folder = trained(
        tmp_path,
        f"""
        [data]
        tokenizer = "characters"
        source = {{ kind = "text", path = {json.dumps(str(text))} }}
        objective = {{ kind = "masked", share = 0.15 }}
        [model]
        family = "encoder"
        width = 32
        layers = 2
        [model.attention]
        heads = 4
        [training]
        steps = 30
        batch = 8
        length = 32
        """,
    )
    model = whatwhere.load(folder)
    asked = "the c[MASK]t and th[MASK] dog"
    found = model.fill(asked, count=3)
    assert [len(blank) for blank in found] == [3, 3]
    theirs = [json.loads(line) for line in run([BINARY, "fill", folder, asked, "--json"]).splitlines()]
    assert len(theirs) == 2
    for ours, other in zip(found, theirs):
        assert [token for token, _ in ours] == [answer["text"] for answer in other[:3]]
        assert [share for _, share in ours] == pytest.approx([answer["probability"] for answer in other[:3]], abs=1e-6)
    weights = model.attention_weights("the cat", 1)
    assert weights.shape == (4, 7, 7)
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
    with pytest.raises(ValueError, match="generate needs a decoder, this run trained an encoder"):
        model.generate("the")
    with pytest.raises(ValueError, match="found no"):
        model.fill("the cat")


@models
def test_classes_are_told_as_the_command_line_tells_them(tmp_path):
    if not BINARY.exists():
        pytest.skip(f"there is no {BINARY.name} to train a model with; `cargo build --release` makes it")
    table = tmp_path / "texts.tsv"
    table.write_text("".join(f"{['good', 'bad'][i % 2]} {i}\t{['pos', 'neg'][i % 2]}\n" for i in range(80)))
    source = {"path": str(table), "field": "1", "label_field": "2"}
    folder = trained(
        tmp_path,
        f"""
        [data]
        tokenizer = "characters"
        source = {{ kind = "labeled", {", ".join(f"{key} = {json.dumps(value)}" for key, value in source.items())} }}
        [model]
        family = "encoder"
        width = 32
        layers = 1
        [training]
        steps = 60
        batch = 8
        length = 12
        lr = 5e-3
        evaluate_every = 30
        """,
    )
    model = whatwhere.load(folder)
    assert model.classes == ["neg", "pos"]
    texts = ["good 3", "bad 4", "good " * 9]
    found = model.classify(texts)
    assert [answer["label"] for answer in found][:2] == ["pos", "neg"]
    assert [answer["cut"] for answer in found] == [False, False, True]
    given = "".join(f"{text}\n" for text in texts)
    theirs = [json.loads(line) for line in run([BINARY, "classify", folder, "--json"], given).splitlines()]
    assert [answer["label"] for answer in theirs] == [answer["label"] for answer in found]
    for ours, other in zip(found, theirs):
        assert ours["probabilities"] == pytest.approx(other["probabilities"], abs=1e-9)
    with pytest.raises(ValueError, match="expected a list"):
        model.classify("good")


@models
def test_an_encoder_decoder_translates_as_the_command_line_does(tmp_path):
    words = [("cat", "Katze"), ("dog", "Hund"), ("bird", "Vogel"), ("fish", "Fisch")] * 40
    (tmp_path / "en").write_text("".join(f"the {en}\n" for en, _ in words))
    (tmp_path / "de").write_text("".join(f"das {de}\n" for _, de in words))
    folder = trained(
        tmp_path,
        f"""
        [data]
        tokenizer = "characters"
        [data.source]
        kind = "pairs"
        source = {json.dumps(str(tmp_path / "en"))}
        target = {json.dumps(str(tmp_path / "de"))}
        [model]
        family = "encoder_decoder"
        width = 32
        layers = 1
        [model.attention]
        heads = 4
        [training]
        steps = 40
        batch = {{ tokens = 256 }}
        length = 32
        lr = 5e-3
        """,
    )
    model = whatwhere.load(folder)
    found = model.translate(["the dog", "the cat"], beam=2)
    theirs = run([BINARY, "translate", folder, "--beam", 2], "the dog\nthe cat\n")
    assert found == theirs.splitlines()
    for call, message in [
        (lambda: model.translate("the dog"), "expected a list"),
        (lambda: model.translate(["the dog"], beem=2), "unknown field `beem`"),
        (lambda: model.score("the dog"), "score needs a decoder"),
        (lambda: model.attention_weights("the dog"), "needs a decoder or an encoder"),
        (lambda: model.fill("the [MASK]"), "fill needs an encoder"),
    ]:
        with pytest.raises(ValueError) as refusal:
            call()
        assert message in str(refusal.value)
