"""NeST: new classifiers composed of old ones, tuned while the network stays as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import ITERATIONS, assert_equal_runs, quiet_run, recipe, run_until

from segue.core import plugins
from segue.core.config import OptimConfig
from segue.core.errors import UserError
from segue.engine.similar_start import start_from_similar
from segue.losses.similar import as_long_as, composed, shared_signs
from segue.testing import Bench

OPTIM = OptimConfig(lr_next=0.01)


def test_what_old_channels_and_new_classes_have_in_common() -> None:
    generator = torch.Generator().manual_seed(0)
    h, rows = (torch.randn(n, 5, generator=generator) for n in (6, 3))
    p = torch.rand(6, 3, generator=generator)
    belongs = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 0], [0, 1], [0, 1]])
    found = shared_signs(h, p, belongs, rows)
    for c, j in ((0, 0), (0, 2), (1, 1)):
        places = belongs[:, c] > 0
        expected = (p[places, j, None] * (h[places] * rows[j] > 0)).sum(0)
        torch.testing.assert_close(found[c, j], expected)


def test_a_row_of_one_old_class_alone() -> None:
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    masks, shares = torch.ones(1, 2, 2), torch.tensor([[0.0, 1.0]])
    assert composed(masks, shares, rows).tolist() == [[3.0, 4.0]]
    scaled = as_long_as(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 1.0], [0.0, 3.0]]))
    assert scaled.norm() == pytest.approx(2.0)


class Counted(list):
    """Batches that count how often they are gone through."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


def started(room: float, epochs: int = 2):
    """A model before and after its start, the context, and how often the images were read."""
    bench = Bench(plugins.find("method", "mib"), {})
    method = bench.method()
    first, second = bench.scenario.steps[:2]
    session = bench.begin(method, first)
    bench.train(session, first, range(3))
    bench.finish(session, first)
    method.new_start = "similar"
    method.grow(second)
    before = {name: value.clone() for name, value in method.model.state_dict().items()}
    context = bench.context(second, torch.Generator())
    counted = Counted(context.loader)
    start_from_similar(method, replace(context, loader=counted), OPTIM, epochs, room)
    return before, method.model.state_dict(), counted.passes


def test_only_new_rows_and_the_background_change() -> None:
    before, after, _ = started(room=1e9)
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {f"classifier.parts.{k}" for k in ("0.weight", "1.weight", "1.bias")}
    old, new = (after[f"classifier.parts.{k}.weight"].flatten(1) for k in (0, 1))
    assert torch.equal(old[1:], before["classifier.parts.0.weight"].flatten(1)[1:])
    lengths = before["classifier.parts.0.weight"].flatten(1).norm(dim=1)
    torch.testing.assert_close(old[0].norm(), lengths[0])
    torch.testing.assert_close(new.norm(dim=1).mean(), lengths.mean())


def test_features_are_computed_once_where_there_is_room_and_the_start_is_the_same() -> None:
    (_, kept, once), (_, anew, every_time), (_, _, with_a_batch) = map(started, (1e9, 0, 40_000))
    assert (once, every_time, with_a_batch) == (1, 3, 3)
    assert all(torch.equal(value, anew[name]) for name, value in kept.items())


@pytest.mark.parametrize("start", ["share", "random", "similar"])
def test_a_resumed_run_starts_alike(start: str, tmp_path: Path) -> None:
    config = recipe("finetune", f"method.start={start}", "method.start_epochs=1")
    quiet_run(config, tmp_path / "whole")
    run_until(config, tmp_path / "stopped", ITERATIONS[0] + 3)
    quiet_run(config, tmp_path / "stopped", resume=True)
    assert_equal_runs(tmp_path / "stopped", tmp_path / "whole")


@pytest.mark.parametrize("method", ["ssul", "dkd", "star", "acil"])
def test_heads_without_background_have_no_such_start(method: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"method\.start"):
        quiet_run(recipe(method, "method.start=similar"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
