"""The recipe: frozen dataclasses, checked once and strictly. A run is one resolved recipe and nothing else.

`data` and `method.params` belong to the chosen data set and method: a complete recipe holds objects of the
`Config` dataclass that stands beside each of them (see engine/recipe.py, which builds it from three words).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, cast, get_type_hints

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from segue.core.errors import UserError, brief, suggest
from segue.core.numbers import check_numbers
from segue.core.overrides import _dotted
from segue.core.scenario import FuturePolicy, Mode, VoidPolicy

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Area = Annotated[float, Field(gt=0, le=100)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MOST = 2**31
"""largest count that a setting may have: no run ends that has more of anything"""
Count = Annotated[int, Field(ge=1, le=MOST)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
UNION_MEMBER = re.compile(r"(str|int|float|bool)|(function|constrained)-.*|\w+\[.*\]")
"""pydantic's names for the member of a union that it tried: no part of a key"""
Fuse = Literal["none", "ewf"] | Annotated[float, Field(ge=0, le=1)]
STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
T = TypeVar("T")


@dataclass(frozen=True)
class ScenarioConfig:
    """Which classes arrive when, and the labelling policies."""

    dataset: str
    """name of a data set, or a data set file (mine.py)"""
    split: str | list[list[str | int]]
    """B-I (B classes first, then I at a time), the number of classes of each step (5-2-2), or the classes"""
    mode: Mode = "overlapped"
    """rule that gives images to steps, and labels to their old and later classes"""
    void: VoidPolicy = "background"
    """label of void pixels in training"""
    future: FuturePolicy = "ignore"
    """label of unseen classes in a test"""
    order: str | list[str | int] | None = None
    """order of arrival: class ids or names, random-SEED, or a name that the data set knows (ade20k: b)"""
    learned: Annotated[int, Field(ge=0)] = 0
    """number of first steps that the model had learned before the run: their classes need no images"""
    learned_by: str | None = None
    """digest of the model that had learned them"""
    teacher: str | None = None
    """file or folder of the model from whose outputs alone a new network learns their classes"""
    keep: str | None = None
    """folder of labelled images of old classes that are shown again in the steps after `learned`"""
    keep_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """fraction of each batch that the images of keep take"""
    keep_digest: str | None = None
    """digest of the images of keep"""
    manifest: str | None = None
    """scenario.json that lists the images of every step"""
    hold_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """fraction of the training images that is held out and tested on instead of the test images"""


@dataclass(frozen=True)
class ModelConfig:
    """The network: any timm backbone, or `tiny`."""

    backbone: str = "resnet101"
    """name of a timm model that gives feature maps, or tiny"""
    head: Literal["deeplabv3", "lite", "tiny"] = "deeplabv3"
    """segmentation head"""
    output_stride: Literal[8, 16, 32] = 16
    """image pixels per feature, in each direction"""
    stages: Count | None = None
    """number of stages of the backbone, if not all"""
    weights: str | None = None
    """local state dict of the backbone (safetensors or a weights-only .pth)"""
    pretrained: bool | None = None
    """weights from timm's hub: true, or false for random ones; null until one of them is said"""
    frozen_stages: Annotated[int, Field(ge=0)] = 0
    """number of first stages of the backbone that are never trained"""
    frozen_blocks: Annotated[int, Field(ge=0)] = 0
    """number of blocks of the stage after them that are never trained either"""
    network: dict[str, Any] | None = None
    """network of another library in place of backbone and head: smp:NAME/ENCODER, hf:NAME, a folder of
    either, torchvision:NAME or file.py:function; a complete recipe holds its description"""
    settled: tuple[dict[str, Any], ...] = ()
    """specs of fusion layers that earlier methods left at the end of the encoder: fixed parts of it"""


@dataclass(frozen=True)
class MethodConfig:
    """The method and its own settings."""

    name: str
    """name of a method, or a method file (mine.py)"""
    params: Any = field(default_factory=dict)
    """settings of the method: its `Config` in a complete recipe"""
    fuse: Fuse = "none"
    """weight of a step's trained tensors in the average with those it began with: none (not averaged), ewf
    (sqrt of the share of new classes), or a number"""
    start: Literal["own", "share", "random", "similar"] = "own"
    """first weights of new classifiers: the method's own, shares of background (MiB), random, or composed of
    all old ones and tuned before the step (NeST)"""
    start_epochs: Count = 5
    """epochs in which start=similar tunes new classifiers"""


@dataclass(frozen=True)
class OptimConfig:
    """SGD with a poly schedule per iteration, a fresh optimiser each step."""

    lr_first: Positive = 0.01
    """learning rate of step 0"""
    lr_next: Positive = 0.001
    """learning rate of incremental steps"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """momentum of SGD"""
    weight_decay: NonNegative = 1e-4
    """weight decay of SGD"""
    nesterov: bool = True
    """Nesterov momentum"""
    poly_power: NonNegative = 0.9
    """exponent of the poly schedule; 0: a constant learning rate"""
    head_factor: Positive = 1.0
    """learning-rate factor of head and classifier"""
    new_factor: Positive | None = None
    """learning-rate factor of new classes' classifiers in incremental steps, if other than head_factor"""
    layer_factor: Positive = 1.0
    """learning-rate factor of what a method adds to the network, such as the CAF layer"""
    clip: Positive | None = 5.0
    """largest norm of the whole gradient"""


@dataclass(frozen=True)
class TrainConfig:
    """The iteration loop."""

    epochs: Count = 30
    """epochs of each step"""
    epochs_next: Count | None = None
    """epochs of incremental steps, if other than `epochs`"""
    batch_size: Annotated[int, Field(ge=2, le=MOST)] = 24
    """images of the global batch, over all ranks"""
    accumulate: Count = 1
    """number of micro-batches per batch: gradients are accumulated over them, which saves memory"""
    crop: Annotated[int, Field(ge=16)] = 512
    """side of the square training crops, in pixels"""
    scale: tuple[Area, Area] = (0.5, 2.0)
    """area range of the random crop, relative to the image"""
    crop_on: Literal["none", "new"] = "none"
    """target of crops in incremental steps: none, or a pixel of a new class where the image has one"""
    crop_on_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """fraction of the crops that are placed on the target of crop_on"""
    balance: Literal["none", "classes"] = "none"
    """weights of pixels in every cross-entropy: equal, or by how seldom their class is in the micro-batch"""
    views: Annotated[int, Field(ge=0, le=MOST)] = 0
    """number of fixed crops and flips of each image; 0: new ones in every epoch"""
    cache_frozen: bool = False
    """outputs of the frozen stages computed once for student and teacher and, with `views`, once per view"""
    cache_gb: NonNegative = 1.0
    """gigabytes of memory for outputs of frozen stages of training images, as many for those of test images,
    and for features with which method.start=similar begins; what does not fit is computed again"""
    cache_disk_gb: NonNegative = 0.0
    """gigabytes of disk, in Segue's cache folder, for outputs of frozen stages that other runs need, too"""
    norm: Literal["frozen", "batch"] = "frozen"
    """batch norm in incremental steps: running statistics, or those of the batch"""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """number format of activations; bf16 and fp16 are mixed precision"""
    channels_last: bool = True
    """memory layout with channels last: faster convolutions"""
    checkpointing: bool = False
    """gradient checkpointing in the backbone: less memory, more time"""
    compile: bool = False
    """`torch.compile` of backbone and head"""
    workers: Annotated[int, Field(ge=0, le=1024)] = 2
    """processes that read images; 0: the training process does"""
    seed: Seed = 42
    """seed of all random numbers"""
    log_every: Count = 10
    """iterations per line of log.jsonl"""
    save_seconds: NonNegative = 60.0
    """seconds between resume points inside a step"""
    patience: Annotated[float, Field(gt=0, le=10_000)] = 20.0
    """minutes that the processes of a run wait for one that does not answer"""
    track: Literal["none", "tensorboard", "wandb", "mlflow"] = "none"
    """tracker of the log's lines; they stay on this machine unless its own settings say otherwise"""

    def epochs_of(self, step: int) -> int:
        return self.epochs if step == 0 else self.epochs_next or self.epochs

    def __post_init__(self) -> None:
        if self.scale[0] > self.scale[1]:
            raise ValueError(f"scale runs from small to large, not {self.scale}")


@dataclass(frozen=True)
class EvalConfig:
    """What is looked at during and after each step."""

    samples: Annotated[int, Field(ge=0, le=MOST)] = 4
    """number of test images whose predictions are kept as pictures"""
    thin: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """stride through the test images: 10 tests every tenth"""
    between: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """further stride through the test images in every step but the last one"""
    every: Count | None = None
    """number of epochs between tests during a step, by every strategy of the method"""
    background: Literal["open", "closed"] = "open"
    """whether a pixel may be called background; closed: for data in which every pixel has a class"""
    size: Literal["crop", "own"] | Count = "crop"
    """size of images in tests and predictions: shorter side as long as train.crop, images whole at their own
    size, or the length of the shorter side"""

    @property
    def closed(self) -> bool:
        return self.background == "closed"


@dataclass(frozen=True)
class ReplayConfig:
    """Images of earlier steps that are kept and shown again: a section of the methods that use them."""

    size: Annotated[int, Field(ge=0, le=MOST)] = 0
    """number of exemplars: images of earlier steps that are kept; 0: none"""
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """fraction of each batch that exemplars take"""

    keeps = "memory"

    @property
    def kept(self) -> str:
        """In words what is kept; nothing if it is off."""
        return f"memory of {self.size} images" if self.size else ""


@dataclass(frozen=True)
class RunConfig:
    """A whole recipe."""

    scenario: ScenarioConfig
    method: MethodConfig
    data: Any = field(default_factory=dict)
    """settings of the data set: its `Config` in a complete recipe"""
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)

    @property
    def test_size(self) -> int | None:
        """Length of the shorter side of images in tests and predictions; None: they keep their own size."""
        size = self.train.crop if self.eval.size == "crop" else self.eval.size
        return None if size == "own" else size


def validate(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Check values against a config dataclass; `where` names the section in messages."""
    _check_keys(kind, values, where)
    try:
        checked = cast("T", _checker(cast("Any", kind)).validate_python(dict(values)))
    except ValidationError as error:
        lines = [_sentence(where, problem) for problem in error.errors()]
        raise UserError("\n".join(dict.fromkeys(lines))) from error
    check_numbers(kind, values, where)
    return checked


@functools.cache
def _checker(kind: type[Any]) -> TypeAdapter[Any]:
    """What pydantic makes of a dataclass, once: it takes longer than a check."""
    kinds: list[Any] = [kind, *(f for f in get_type_hints(kind).values() if dataclasses.is_dataclass(f))]
    for cls in kinds:
        cls.__pydantic_config__ = STRICT
    return TypeAdapter(kind)


def _check_keys(kind: type, values: Mapping[str, Any], where: str) -> None:
    """Unknown keys, with the nearest valid one (pydantic names them but does not say what was meant)."""
    hints = get_type_hints(kind)
    for key, value in values.items():
        if key not in hints:
            raise UserError(f"Unknown key '{_dotted(where, key)}'.{_meant(kind, str(key), where)}")
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, Mapping):
                raise UserError(f"'{_dotted(where, key)}' is a section: write '{key}: {{key: value}}'.")
            _check_keys(hints[key], value, _dotted(where, key))


def _meant(kind: type, key: str, where: str) -> str:
    """The nearest key of a section as it is typed; a key of a section below may lack the section's name."""
    hints = get_type_hints(kind)
    for section, hint in hints.items():
        if dataclasses.is_dataclass(hint) and key in get_type_hints(hint):
            return f" Did you mean '{_dotted(where, section)}.{key}'?"
    return suggest(key, hints, _dotted(where, ""))


def _sentence(where: str, problem: Mapping[str, Any]) -> str:
    location = [str(part) for part in problem["loc"] if not UNION_MEMBER.fullmatch(str(part))]
    path = _dotted(where, ".".join(location))
    if problem["type"] == "missing":
        return f"'{path}' is missing."
    message = problem["msg"][0].lower() + problem["msg"][1:]
    return f"'{path}' is {brief(problem['input'])}: {message}."


def as_dict(config: RunConfig) -> dict[str, Any]:
    return dataclasses.asdict(config)


def to_yaml(config: RunConfig) -> str:
    """A resolved recipe as YAML, in the order of the sections."""
    sections = []
    for name, section in read_back(config).items():
        text = yaml.safe_dump({name: section}, sort_keys=False, default_flow_style=False, allow_unicode=True)
        sections.append(text)
    return "".join(sections)


def read_back(config: RunConfig) -> dict[str, Any]:
    """A recipe as it reads when it has been stored: its tuples have become lists."""
    return json.loads(json.dumps(as_dict(config)))


def added(default: Any) -> Any:
    """A field of a method's settings that older recipes lack: at its default it is no part of the hash."""
    return field(default=default, metadata={"added": True})


def _drop_added(params: Any, content: dict[str, Any]) -> None:
    for each in dataclasses.fields(params) if dataclasses.is_dataclass(params) else ():
        value = getattr(params, each.name)
        if each.metadata.get("added") and value == each.default:
            del content[each.name]
        elif isinstance(content.get(each.name), dict):
            _drop_added(value, content[each.name])


def decisive(config: RunConfig) -> dict[str, Any]:
    """A recipe as it is hashed: without keys that older recipes lack, where they say nothing."""
    content = as_dict(config)
    content["model"]["pretrained"] = bool(config.model.pretrained)  # what is open until it is said was false
    _drop_added(config.method.params, content["method"]["params"])
    if not config.scenario.learned:
        for key in ("learned", "learned_by"):
            del content["scenario"][key]
    if config.scenario.teacher is None:
        del content["scenario"]["teacher"]
    if config.scenario.keep is None:
        for key in ("keep", "keep_share", "keep_digest"):
            del content["scenario"][key]
    if not config.model.settled:
        del content["model"]["settled"]
    if not config.model.frozen_blocks:
        del content["model"]["frozen_blocks"]
    if config.train.crop_on == "none":
        for key in ("crop_on", "crop_on_share"):
            del content["train"][key]
    if config.model.network is None:
        del content["model"]["network"]
    if config.train.balance == "none":
        del content["train"]["balance"]
    for key in ("views", "cache_frozen"):
        if not content["train"][key]:
            del content["train"][key]
    for key in ("cache_gb", "cache_disk_gb", "patience"):  # of time alone
        del content["train"][key]
    if config.eval.between == 1:
        del content["eval"]["between"]
    if not config.eval.closed:
        del content["eval"]["background"]
    if config.eval.size == "crop":
        del content["eval"]["size"]
    if config.method.fuse == "none":
        del content["method"]["fuse"]
    if config.method.start != "similar":
        del content["method"]["start_epochs"]
    if config.method.start == "own":
        del content["method"]["start"]
    return content


def recipe_hash(config: RunConfig) -> str:
    content = decisive(config)
    del content["train"]["track"]  # who looks on is no part of a recipe: older records have the same hash
    return "sha256:" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
