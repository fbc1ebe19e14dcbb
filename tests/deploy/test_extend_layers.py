"""A model with CAF's layer goes on with other methods: the layer stays, fixed, and predictions with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pets import QUIET, TINY, only, state, train

import segue
from segue.core.errors import UserError
from segue.deploy.extend import handed_over
from segue.deploy.load import load_run
from segue.models.segmenter import Segmenter

WORDS = {"display": QUIET, "device": "cpu", "overrides": ["train.epochs=1"]}
PICTURES = torch.randint(0, 256, (2, 3, 32, 32), generator=torch.Generator().manual_seed(0)).byte()


@pytest.fixture(scope="module", params=["segue", "official"])
def attentive(everything: Path, tmp_path_factory: pytest.TempPathFactory, request) -> segue.Model:
    """A model whose layer has learned something: its attention is not zero any more."""
    home = tmp_path_factory.mktemp("caf")
    words = [*TINY, f"data.root={everything}", f"method.params.variant={request.param}"]
    segue.run(segue.resolve("caf", "folder", "cat,dog/bird", overrides=words), home / "run", display=QUIET)
    model = segue.load(home / "run", device="cpu")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in model.network.fusion.parameters():
            tensor += 0.3 * torch.randn(tensor.shape, generator=generator)
    model.save(home / "model")
    return segue.load(home / "model", device="cpu")


def logits(network: Segmenter) -> torch.Tensor:
    with torch.inference_mode():
        return network.eval()(PICTURES).logits


def test_predictions_before_the_step_are_the_same_bit_for_bit(attentive: segue.Model):
    settings, weights = handed_over(attentive.network, own=False)
    spec = {**attentive.network.spec(), "fusion": None}
    spec["model"] = {**spec["model"], "settled": settings["settled"]}
    again = Segmenter.from_spec(spec)
    again.load_state_dict(weights)
    assert torch.equal(logits(again), logits(attentive.network))
    bare = Segmenter.from_spec({**attentive.network.spec(), "fusion": None})
    bare.load_state_dict({key: value for key, value in weights.items() if "settled" not in key})
    assert not torch.equal(logits(bare), logits(attentive.network)), "it cannot simply be dropped"
    assert Segmenter.from_spec(again.spec()).spec() == again.spec()


@pytest.mark.parametrize("method", ["mib", "plop"])
def test_another_method_goes_on_with_the_layer_as_it_is(attentive: segue.Model, tmp_path: Path, method: str):
    layer = {name: tensor.clone() for name, tensor in attentive.network.fusion.state_dict().items()}
    for name in ("fish", "cow"):
        only(tmp_path / name, "c", "fish")
        (tmp_path / name / "classes.txt").write_text(f"background\n{name}")
    grown = segue.extend(attentive, tmp_path / "fish", tmp_path / "one", method=method, **WORDS)
    assert grown.network.fusion is None and len(grown.network.settled) == 1
    begun = state(tmp_path / "one-run", 1)
    after = grown.network.settled[0].state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in layer.items()), "it is not trained"
    assert torch.equal(begun["model.settled.0.spatial.weight"], layer["spatial.weight"])
    again = segue.load(tmp_path / "one", device="cpu")
    black = np.zeros((32, 32, 3), dtype=np.uint8)
    assert np.array_equal(again.predict(black).ids, grown.predict(black).ids)
    twice = segue.extend(tmp_path / "one", tmp_path / "cow", tmp_path / "two", **WORDS)
    assert twice.history.method == method and len(twice.network.settled) == 1
    back = segue.extend(tmp_path / "one", tmp_path / "cow", tmp_path / "back", method="caf", **WORDS)
    assert back.network.fusion is not None and len(back.network.settled) == 1


def test_the_step_begins_with_the_predictions_of_the_model(attentive: segue.Model, tmp_path: Path):
    """Through the whole run: its checkpoint before the step predicts what the model predicts."""
    data = only(tmp_path / "fish", "c", "fish")
    segue.extend(attentive, data, tmp_path / "grown", method="mib", **WORDS)
    load_run(tmp_path / "grown-run", step=1, device="cpu").save(tmp_path / "before")
    before = segue.load(tmp_path / "before", device="cpu")  # as the model is: in the same memory layout
    assert before.classes == attentive.classes
    assert torch.equal(logits(before.network), logits(attentive.network))


def test_a_model_file_with_the_layer_goes_on_too(attentive: segue.Model, tmp_path: Path):
    attentive.save(tmp_path / "model.safetensors")
    data = only(tmp_path / "fish", "c", "fish")
    grown = segue.extend(tmp_path / "model.safetensors", data, tmp_path / "grown", **WORDS)
    assert grown.classes[-1] == "fish" and len(grown.network.settled) == 1


@pytest.mark.parametrize(("first", "then"), [("mib", "ssul"), ("ssul", "mib")])
def test_classifiers_that_do_not_fit_are_refused(everything: Path, tmp_path: Path, first: str, then: str):
    """Otherwise the old classes would silently be forgotten: the classifier would begin at random."""
    segue.load(train(first, "cat,dog", everything, tmp_path / "run")).save(tmp_path / "model")
    data = only(tmp_path / "bird", "b", "bird")
    with pytest.raises(UserError, match="classifier"):
        segue.extend(tmp_path / "model", data, tmp_path / "grown", method=then, **WORDS)
    assert not list(tmp_path.glob("grown*"))
