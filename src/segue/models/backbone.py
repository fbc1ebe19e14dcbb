"""Encoders: any timm model that gives feature maps, and `tiny`, a small one for small pictures.

A backbone is a module whose forward returns the list of its stage outputs, with `channels` (of each), `mean`
and `std` (of the input in [0, 1]), `first_stages(count, blocks)` (the modules that make up its first stages
and the first blocks of the next one) and `blocks()` (modules one after the other that hold most activations).
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from segue.core.config import ModelConfig
from segue.core.errors import UserError, suggest
from segue.core.ordinary import user_path
from segue.models._hub import no_waiting
from segue.models._speed.depthwise import quicken
from segue.models.head import norm_act
from segue.models.weights_file import open_weights


class Tiny(nn.Module):
    """Convolutions 3-24-48-64-96 with strides 2, 2, 2, 1: output stride 8."""

    channels = (24, 48, 64, 96)
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)

    def __init__(self) -> None:
        super().__init__()
        widths = (3, *self.channels)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), norm_act(b))
            for a, b, stride in zip(widths, widths[1:], (2, 2, 2, 1), strict=False)
        )

    def forward(self, images_B3HW: Tensor) -> list[Tensor]:
        maps = [images_B3HW]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return maps[1:]

    def first_stages(self, count: int, blocks: int = 0) -> list[nn.Module]:
        _check_count(count, len(self.channels))
        if blocks:
            raise UserError("The stages of the backbone tiny have no blocks: set model.frozen_blocks=0.")
        return list(self.stages[:count])

    def blocks(self) -> list[nn.Module]:
        return list(self.stages)


class TimmBackbone(nn.Module):
    """A timm feature extractor behind our interface."""

    def __init__(self, body: nn.Module, config: dict[str, Any]) -> None:
        super().__init__()
        self.body = body
        self.channels: tuple[int, ...] = tuple(body.feature_info.channels())
        self.mean, self.std = tuple(config["mean"]), tuple(config["std"])
        self.channels_last = str(getattr(body, "output_fmt", "NCHW")).split(".")[-1] == "NHWC"

    def forward(self, images_B3HW: Tensor) -> list[Tensor]:
        maps = self.body(images_B3HW)
        return [each.permute(0, 3, 1, 2) for each in maps] if self.channels_last else maps

    def first_stages(self, count: int, blocks: int = 0) -> list[nn.Module]:
        """Modules from the input to the end of stage `count` and of `blocks` of the next, in order.

        Not the leaves alone: a block or a norm with an activation inside has parameters of its own.
        """
        _check_count(count, len(self.channels))
        if blocks:
            return self._up_to(set(self._block(count, blocks).modules()))
        if count == 0:
            return []
        # feature extractors may flatten "stages.0" to "stages_0"
        stage = self.body.feature_info.module_name()[count - 1].replace("_", ".")
        named = ((name.replace("_", "."), module) for name, module in self.body.named_modules())
        inside = {module for name, module in named if f"{name}.".startswith(f"{stage}.")}
        if not inside:
            raise UserError(
                "The stages of this backbone cannot be told apart: set model.frozen_stages and"
                " model.frozen_blocks to 0."
            )
        return self._up_to(inside)

    def _up_to(self, part: Container[nn.Module]) -> list[nn.Module]:
        """Modules from the input to the last one of a part, without those that also hold later ones."""
        modules = [(f"{name}.", module) for name, module in self.body.named_modules() if name]
        end = 1 + max(number for number, (_, module) in enumerate(modules) if module in part)
        later = [name for name, _ in modules[end:]]
        return [
            module for name, module in modules[:end] if not any(other.startswith(name) for other in later)
        ]

    def _block(self, stages: int, number: int) -> nn.Module:
        """Block `number`, counted from 1, of the stage after the first `stages`; its last is not given."""
        if stages == len(self.channels):
            raise UserError(
                "model.frozen_blocks counts blocks of the first stage that is not frozen, but all stages are"
                " frozen: set it to 0."
            )
        before, after = (set(self.first_stages(count)) for count in (stages, stages + 1))
        inside = [block for block in self.blocks() if block in after and block not in before]
        if number >= len(inside):
            raise UserError(
                f"model.frozen_blocks is {number}, but one block of a stage has to be trained, and stage"
                f" {stages + 1} of the backbone has {len(inside)}: set at most {max(len(inside) - 1, 0)}."
            )
        return inside[number - 1]

    def blocks(self) -> list[nn.Module]:
        """The outermost members of sequences that hold several convolutions, such as residual blocks."""
        return _blocks(self.body)


def _blocks(module: nn.Module) -> list[nn.Module]:
    found: list[nn.Module] = []
    for child in module.children():
        convs = sum(isinstance(part, nn.Conv2d | nn.Linear) for part in child.modules())
        whole = isinstance(module, nn.Sequential) and not isinstance(child, nn.Sequential) and convs > 1
        found += [child] if whole else _blocks(child)
    return found


def _check_count(count: int, stages: int) -> None:
    if count > stages:
        raise UserError(f"model.frozen_stages is {count}, but the backbone has {stages} stages.")


def build_backbone(config: ModelConfig) -> Tiny | TimmBackbone:
    if config.backbone == "tiny":
        if config.output_stride != 8:
            raise UserError("The backbone tiny has output stride 8: set model.output_stride=8.")
        if config.stages:
            raise UserError("The backbone tiny is used whole: drop model.stages.")
        if config.weights or config.pretrained:
            raise UserError(
                "The backbone tiny has no pretrained weights: drop model.weights and model.pretrained."
            )
        return Tiny()
    return _build_timm(config)


def _build_timm(config: ModelConfig) -> TimmBackbone:
    import timm  # takes two seconds: only when it is needed

    name = config.backbone
    if name.split(".")[0] not in (known := timm.list_models()):
        raise UserError(f"There is no backbone '{name}'.{suggest(name, ['tiny', *known])}")
    body = _create(name, config.output_stride, bool(config.pretrained), config.stages)
    reduction = body.feature_info.reduction()[-1]
    if reduction != config.output_stride:
        remedy = f"set model.output_stride={reduction}" if reduction >= 8 else "use more model.stages"
        raise UserError(
            f"The backbone {name}{f' with {config.stages} stages' if config.stages else ''} has output"
            f" stride {reduction}, not {config.output_stride}: {remedy}."
        )
    _drop_unused(body)
    cfg = timm.get_pretrained_cfg(name)
    if config.weights:
        load_weights(body, timm.create_model(name), user_path(config.weights))
    quicken(body)
    return TimmBackbone(body, {"mean": cfg.mean, "std": cfg.std})


ANY_SIZE: tuple[dict[str, Any], ...] = (
    {"strict_img_size": False},
    {"dynamic_img_size": True, "dynamic_img_pad": True},
)
"""settings by which timm's transformers take images of other sizes than they were made for"""


def _features(name: str, stride: int, pretrained: bool, wanted: dict[str, Any]) -> nn.Module:
    import timm

    if not timm.get_pretrained_cfg(name).fixed_input_size:
        if stride != 32:  # 32 is what backbones have by themselves; some take no such argument
            wanted = {**wanted, "output_stride": stride}
        return timm.create_model(name, features_only=True, pretrained=pretrained, **wanted)
    for settings in ANY_SIZE:
        with suppress(TypeError):  # a transformer of another kind
            return timm.create_model(name, features_only=True, pretrained=pretrained, **wanted, **settings)
    return timm.create_model(name, features_only=True, pretrained=pretrained, **wanted)


def _create(name: str, stride: int, pretrained: bool, stages: int | None) -> nn.Module:
    """timm's feature extractor with the first so many stages, or all."""
    wanted: dict[str, Any] = {"out_indices": tuple(range(stages))} if stages else {}
    try:
        with no_waiting() if pretrained else nullcontext():
            return _features(name, stride, pretrained, wanted)
    except OSError as error:
        reason = str(error).rstrip(".")
        raise UserError(
            f"The pretrained weights of {name} could not be fetched: {reason}."
            " Give a local file with model.weights=FILE."
        ) from error
    except (
        RuntimeError,
        AttributeError,
        TypeError,
        NotImplementedError,
        AssertionError,
        IndexError,
    ) as error:
        # is it the number of stages, or the stride?
        if stages and stages > (there := len(_create(name, stride, False, None).feature_info.channels())):
            raise UserError(
                f"model.stages is {stages}, but the backbone {name} has {there} stages."
            ) from error
        raise UserError(
            f"The backbone {name} cannot give feature maps at output stride {stride}"
            f"{f': {error}' if str(error) else ''}."
        ) from error


def _drop_unused(body: nn.Module) -> None:
    """Some of timm's feature extractors run through all their stages, whichever are wanted."""
    parent, _, last = body.feature_info.module_name()[-1].rpartition(".")
    stages = dict(body.named_modules()).get(parent) if parent else None  # others have no such sequence
    if last.isdecimal() and isinstance(stages, nn.Sequential):
        del stages[int(last) + 1 :]


def load_weights(body: nn.Module, whole: nn.Module, path: Path) -> None:
    """Load a timm-layout state dict strictly: nothing needed may be absent, nothing may be unknown.

    `whole` is the full classification model: its parts that a backbone lacks (classifier, last projection)
    may be in the file or not.
    """
    stored = read_state(path)
    full = whole.state_dict()
    if unknown := sorted(set(stored) - set(full)):
        raise UserError(
            f"{path} holds '{unknown[0]}', which is not part of this backbone ({len(unknown)} such entries)."
        )
    wanted: dict[str, Tensor] = {}
    for key, value in body.state_dict().items():
        # feature extractors may flatten "stages.0" to "stages_0"
        source = key if key in full else key.replace("_", ".", 1)
        source = source if source in full else key.removeprefix("model.")  # those of transformers wrap it
        if source not in stored:
            raise UserError(f"{path} lacks '{source}': it is not the state dict of this backbone.")
        if stored[source].shape != value.shape:
            raise UserError(
                f"{path}: '{source}' has shape {tuple(stored[source].shape)},"
                f" the backbone needs {tuple(value.shape)}."
            )
        kinds = stored[source].is_floating_point(), value.is_floating_point()
        if kinds[0] != kinds[1] or not stored[source].isfinite().all():
            raise UserError(
                f"{path}: '{source}' is {stored[source].dtype} or holds NaN: is the file damaged?"
            )
        wanted[key] = stored[source]
    body.load_state_dict(wanted, strict=True)


def read_state(path: Path) -> dict[str, Tensor]:
    """A flat dict of tensors from safetensors or from a .pth read without executing anything."""
    state = open_weights(path)
    if not isinstance(state, dict) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()
    ):
        raise UserError(f"{path} is not a flat state dict (name -> tensor).")
    return state
