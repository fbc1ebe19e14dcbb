"""Weights from the hub: without a network that is said at once."""

from __future__ import annotations

import socket
import time

import pytest
from huggingface_hub import constants

from segue.core.config import ModelConfig
from segue.core.errors import UserError
from segue.models._hub import no_waiting
from segue.models.adopted.sources import smp_module
from segue.models.backbone import build_backbone


@pytest.fixture
def unplugged(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr("urllib.request.getproxies", dict)


def test_the_hub_is_offline_only_inside_and_only_without_a_network(unplugged, monkeypatch) -> None:
    with no_waiting():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy"})
    with no_waiting():
        assert not constants.HF_HUB_OFFLINE
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [])
    with no_waiting():
        assert not constants.HF_HUB_OFFLINE


def test_missing_weights_are_said_at_once(unplugged, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"it waits {seconds} s"))
    with pytest.raises(UserError, match=r"test_resnet could not be fetched.*model.weights=FILE"):
        build_backbone(ModelConfig(backbone="test_resnet", pretrained=True))


@pytest.mark.filterwarnings("ignore:Error loading resnet18.*trying loading from original url")  # smp 0.5
def test_missing_weights_of_an_smp_encoder_are_said_at_once(unplugged, monkeypatch, tmp_path) -> None:
    pytest.importorskip("segmentation_models_pytorch")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"it waits {seconds} s"))
    with pytest.raises(UserError, match=r"could not fetch the weights of resnet18.*model.weights=FILE"):
        smp_module({"kind": "smp", "name": "Unet", "config": {"encoder_name": "resnet18"}}, fetch=True)
