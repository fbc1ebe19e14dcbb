"""The guard that every test stands under: libraries cannot get around it, and this machine is free."""

from __future__ import annotations

import socket

import pytest
from network_guard import Reached, is_here

from segue.core.config import ModelConfig
from segue.models.adopted.sources import smp_module
from segue.models.backbone import build_backbone


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", None, "", b"127.0.0.1", "0.0.0.0"])
def test_this_machine_is_here(host: object) -> None:
    assert is_here(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "huggingface.co", b"example.org", "10.0.0.1"])
def test_others_are_not(host: object) -> None:
    assert not is_here(host)


def test_a_connection_inside_the_machine_is_made() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()


@pytest.mark.parametrize("call", ["connect", "connect_ex"])
def test_a_connection_to_elsewhere_is_not(call: str) -> None:
    with socket.socket() as ours, pytest.raises(Reached, match=r"192\.0\.2\.1"):
        getattr(ours, call)(("192.0.2.1", 443))


def test_datagrams_are_not_sent() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as ours, pytest.raises(Reached):
        ours.sendto(b"x", ("192.0.2.1", 53))


def test_the_hub_is_not_asked(tmp_path) -> None:
    from huggingface_hub import hf_hub_download

    with pytest.raises(Reached):
        hf_hub_download("timm/test_resnet.r160_in1k", "config.json", cache_dir=tmp_path)


def test_weights_of_timm_are_asked_for_only_by_word(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    build_backbone(ModelConfig(backbone="test_resnet", pretrained=False))
    with pytest.raises(Reached):
        build_backbone(ModelConfig(backbone="test_resnet", pretrained=True))


def test_encoders_of_smp_are_asked_for_only_by_word(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    pytest.importorskip("segmentation_models_pytorch")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    described = {"name": "Unet", "config": {"encoder_name": "resnet18", "encoder_weights": "imagenet"}}
    smp_module(described)
    with pytest.raises(Reached):
        smp_module(described, fetch=True)
