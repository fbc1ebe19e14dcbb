"""Where data sets come from: their archives, sizes and digests, and what has to be got by hand.

Sizes and SHA-256 digests are those that other public toolkits check too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """One file to get, and the folder in it that is wanted."""

    name: str
    size: int
    sha256: str
    top: str
    """folder of the archive that is wanted"""
    folder: str
    """place of `top` below the user's folder"""
    holds: tuple[str, ...]
    """folders that must be in `top`"""
    unpacked: int
    """bytes of all unpacked files on a disk, rounded up"""
    site: str | None = None
    """address of its folder on the web; None: only after a login"""


@dataclass(frozen=True)
class Source:
    """A data set: its archives and the terms of its publishers."""

    title: str
    root: str
    """folder to train on, below the user's folder"""
    archives: tuple[Archive, ...]
    terms: str
    """permitted uses, in one sentence"""
    page: str = ""
    """address for login and download"""


SOURCES = {
    "voc": Source(
        "PASCAL VOC 2012",
        "VOCdevkit/VOC2012",
        (
            Archive(
                "VOCtrainval_11-May-2012.tar",
                1_999_639_040,
                "e14f763270cf193d0b5f74b169f44157a4b0c6efa708f4dd0ff78ee691763bcb",
                "VOCdevkit/VOC2012",
                "VOCdevkit/VOC2012",
                ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"),
                2_200_000_000,
                "http://host.robots.ox.ac.uk/pascal/VOC/voc2012",
            ),
        ),
        "The images of VOC come from Flickr, whose terms of use hold.",
    ),
    "ade20k": Source(
        "ADE20K (scene parsing, 150 classes)",
        "ADEChallengeData2016",
        (
            Archive(
                "ADEChallengeData2016.zip",
                967_382_037,
                "7ff1be44964418441f542a7cc1e1a650e7dc0fc275f5d23252bc9bbdbc977b29",
                "ADEChallengeData2016",
                "ADEChallengeData2016",
                ("images/training", "images/validation", "annotations/training", "annotations/validation"),
                1_500_000_000,
                "http://data.csail.mit.edu/places/ADEchallenge",
            ),
        ),
        "The images of ADE20K are for non-commercial research and education only.",
    ),
    "cityscapes": Source(
        "Cityscapes",
        "cityscapes",
        (
            Archive(
                "gtFine_trainvaltest.zip",
                252_567_705,
                "40461a50097844f400fef147ecaf58b18fd99e14e4917fb7c3bf9c0d87d95884",
                "gtFine",
                "cityscapes/gtFine",
                ("train", "val"),
                3_000_000_000,
            ),
            Archive(
                "leftImg8bit_trainvaltest.zip",
                11_592_327_197,
                "3ccff9ac1fa1d80a6a064407e589d747ed0657aac7dc495a4403ae1235a37525",
                "leftImg8bit",
                "cityscapes/leftImg8bit",
                ("train", "val"),
                12_500_000_000,
            ),
        ),
        "Cityscapes is for non-commercial purposes only (https://www.cityscapes-dataset.com/license/).",
        "https://www.cityscapes-dataset.com/downloads/",
    ),
}

SBD_NOTE = """\
The usual 10,582 training images of VOC (train_aug) need SBD's extra masks. Others host them, so they are got
by hand:
  1. SegmentationClassAug.zip, linked in the README of github.com/DrSleep/tensorflow-deeplab-resnet. Unpack
     its masks to {root}/SegmentationClassAug/*.png
  2. the list of 10,582 lines, dataset/train.txt of the same repository. Save it as
     {root}/ImageSets/Segmentation/train_aug.txt
Training takes them by itself as soon as both are there, and the 1,464 images of train.txt until then."""
