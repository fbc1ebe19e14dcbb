"""Frames of videos, and files that are none."""

from __future__ import annotations

import numpy as np
import pytest
from deploy.predicting import Brightness, photo, read_ids, truth

from segue.core.errors import UserError
from segue.data.image_files import BadFile
from segue.deploy import video
from segue.deploy.inputs import find_inputs
from segue.deploy.predict import Settings, predict


def write_video(path, frames) -> None:
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=5)  # lossless
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "bgr0"
        for pixels in frames:
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def test_every_frame_gets_a_mask(tmp_path):
    frames = [photo(40, 64, seed) for seed in range(3)]
    write_video(tmp_path / "clip.mkv", frames)
    inputs = find_inputs([str(tmp_path / "clip.mkv")], tmp_path / "out")
    done = predict(Brightness(), inputs, tmp_path / "out", Settings())
    assert [record.image for record in done.records] == [f"{tmp_path / 'clip.mkv'}#{n}" for n in range(3)]
    for number, pixels in enumerate(frames):
        found = read_ids(tmp_path / "out" / "masks" / "clip" / f"{number:06d}.png")
        assert np.array_equal(found, truth(pixels))
    assert predict(Brightness(), inputs, tmp_path / "out", Settings(), resume=True).resumed == 3


@pytest.mark.parametrize("content", [b"", b"text", b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n"])
@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi"])
def test_what_is_no_video_is_skipped(content, ending, tmp_path):
    """A list of addresses is not followed, either."""
    pytest.importorskip("av")
    path = tmp_path / f"clip.{ending}"
    path.write_bytes(content)
    with pytest.raises(BadFile, match="clip"):
        list(video.frames(path))
    done = predict(Brightness(), find_inputs([str(path)], tmp_path / "out"), tmp_path / "out", Settings())
    assert done.records == [] and len(done.skipped) == 1


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(UserError, match=r"segue\[video\]"):
        list(video.frames(tmp_path / "clip.mp4"))
