"""Folders of smp and Hugging Face with tiny networks, as a recipe names them: `model.network=smp:FOLDER`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SMP = {
    "_model_class": "Unet",
    "encoder_name": "tu-test_resnet.r160_in1k",
    "encoder_weights": None,
    "decoder_channels": [16, 16, 8, 8, 8],
    "classes": 3,
}
HF = {
    "model_type": "segformer",
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 16, 24, 32],
    "num_attention_heads": [1, 2, 3, 4],
    "decoder_hidden_size": 16,
    "hidden_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.1,
    "id2label": {"0": "a", "1": "b", "2": "c"},
}
NEEDS = {"smp": "segmentation_models_pytorch", "hf": "transformers"}


def tiny_folder(folder: Path, family: str) -> str:
    """A folder that holds a config alone; returns the network's name in a recipe."""
    pytest.importorskip(NEEDS[family])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SMP if family == "smp" else HF))
    return f"{family}:{folder}"
