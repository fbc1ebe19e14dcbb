"""The API: what is answered, in which form, and to whom."""

from __future__ import annotations

import base64
import io
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from serving import CLASSES, OTHERS, bright, encoded, models, photo

from segue.core.errors import UserError
from segue.deploy.card_pictures import card_picture
from segue.deploy.model_folder import replace_pictures
from segue.deploy.serve.app import create_app
from segue.deploy.serve.limits import Limits
from segue.deploy.serve.predictors import ArrayPredictor, staged

PNG = {"content-type": "image/png"}


@pytest.fixture
def model():
    return bright()


@pytest.fixture
def client(model):
    with TestClient(create_app(models(model))) as client:
        yield client


def read(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content), formats=["PNG"]))


@pytest.mark.parametrize("way", ["field", "raw", "untyped"])
def test_mask_is_that_of_predict(client, model, way):
    content = encoded(photo())
    given = {
        "field": {"files": {"file": ("../../etc/passwd", content, "text/html")}},
        "raw": {"content": content, "headers": PNG},
        "untyped": {"content": content},
    }[way]
    answer = client.post("/predict", **given)
    assert answer.status_code == 200 and answer.headers["content-type"] == "image/png"
    assert np.array_equal(read(answer.content), model.predict(photo()).ids)


def test_mask_has_the_colours_of_the_classes(client, model):
    picture = Image.open(
        io.BytesIO(client.post("/predict", content=encoded(photo())).content), formats=["PNG"]
    )
    palette = np.array(picture.getpalette()[:9]).reshape(3, 3)
    assert picture.mode == "P" and palette.tolist() == [list(colour) for colour in model.colours]


def test_areas_by_name(client):
    found = client.post("/predict?answer=areas", content=encoded(photo())).json()
    assert (found["model"], found["width"], found["height"]) == ("model", 20, 12)
    assert {name: area["pixels"] for name, area in found["areas"].items()} == {
        "background": 110,
        "grey": 20,
        "white": 110,
    }
    assert found["areas"]["grey"]["share"] == pytest.approx(20 / 240, abs=1e-5)
    assert 0.9 < found["areas"]["white"]["confidence"] <= 1


def test_both(client):
    found = client.post("/predict?answer=both", content=encoded(photo())).json()
    assert read(base64.b64decode(found["mask"])).shape == (12, 20) and set(found["areas"]) == set(CLASSES)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "image/png"),
        ("application/json", "application/json"),
        ("text/html, application/json;q=0.9, */*", "application/json"),
        ("image/png, application/json", "image/png"),
    ],
)
def test_header_accept_decides(client, accept, kind):
    answer = client.post("/predict", content=encoded(photo()), headers={"accept": accept})
    assert answer.headers["content-type"] == kind


def test_image_is_turned_as_its_exif_data_ask(client):
    exif = Image.Exif()
    exif[0x0112] = 6
    answer = client.post("/predict", content=encoded(np.rot90(photo()).copy(), exif=exif))
    assert read(answer.content).shape == (12, 20)


def test_two_models_answer_by_name_and_together():
    with TestClient(create_app(models(bright(), bright(OTHERS)))) as client:
        listed = client.get("/classes").json()["models"]
        assert [[one["name"] for one in own["classes"]] for own in listed] == [[*CLASSES], [*OTHERS]]
        content = encoded(photo())
        by_name = client.post("/predict?answer=areas&model=grown", content=content).json()
        assert by_name["model"] == "grown" and set(by_name["areas"]) == set(OTHERS)
        view = client.post("/predict?answer=view", content=content).json()
        unknown = client.post("/predict?model=other", content=content)
    assert [own["name"] for own in view["models"]] == ["model", "grown"]
    ids = np.frombuffer(zlib.decompress(base64.b64decode(view["models"][0]["ids"])), np.uint8)
    assert ids.reshape(12, 20)[1, -1] == 2
    assert base64.b64decode(view["photo"])[:2] == b"\xff\xd8"
    assert unknown.status_code == 404 and "'model' and 'grown'" in unknown.json()["error"]


def test_view_of_a_large_image_is_small(client):
    view = client.post("/predict?answer=view", content=encoded(photo(100, 2000))).json()
    assert (view["width"], view["height"]) == (1600, 80)
    assert view["image"] == {"width": 2000, "height": 100}


def test_images_that_wait_are_answered_together(model):
    model.network.gate.clear()
    with TestClient(create_app(models(model))) as client:
        answers: list[int] = []

        def ask(height: int) -> None:
            answers.append(client.post("/predict", content=encoded(photo(height))).status_code)

        threads = [threading.Thread(target=ask, args=(height,)) for height in [12] * 6 + [16] * 2]
        for thread in threads:
            thread.start()
        until(lambda: client.get("/health").json()["under_way"] == 8)
        time.sleep(0.2)
        model.network.gate.set()
        for thread in threads:
            thread.join()
        counters = client.get("/metrics").text
    assert answers == [200] * 8
    assert sum(model.network.batches) == 8 and len(model.network.batches) <= 4, "one, then all of a size"
    assert 'segue_requests_total{route="/predict",status="200"} 8' in counters
    assert "segue_batch_size_sum 8" in counters and "segue_predict_seconds_count 8" in counters


def test_full_queue_refuses_and_works_again(model):
    model.network.gate.clear()
    with TestClient(create_app(models(model), Limits(queue=2))) as client:
        content = encoded(photo())
        waiting = [
            threading.Thread(target=client.post, args=("/predict",), kwargs={"content": content})
            for _ in "12"
        ]
        for thread in waiting:
            thread.start()
        until(lambda: client.get("/health").json()["under_way"] == 2)
        refused = client.post("/predict", content=content)
        model.network.gate.set()
        for thread in waiting:
            thread.join()
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        assert client.post("/predict", content=content).status_code == 200


def until(holds) -> None:
    for _ in range(500):
        if holds():
            return
        time.sleep(0.02)
    pytest.fail("it never came to that")


def test_one_bad_image_does_not_harm_the_others_of_its_batch(model):
    network = model.network
    real = network.forward

    def picky(images_B3HW, old_z_BChw=None):
        assert network.gate.wait(20)
        if (images_B3HW[:, :, 0, 0] == 7).any():
            raise RuntimeError("not this one")
        return real(images_B3HW)

    network.forward = picky
    network.gate.clear()
    with TestClient(create_app(models(model))) as client:
        statuses: dict[int, int] = {}

        def ask(place: int) -> None:
            pixels = photo()
            pixels[0, 0] = 7 if place == 2 else 0
            statuses[place] = client.post("/predict", content=encoded(pixels)).status_code

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(5)]
        for thread in threads:
            thread.start()
        until(lambda: client.get("/health").json()["under_way"] == 5)
        network.gate.set()
        for thread in threads:
            thread.join()
        assert statuses == {0: 200, 1: 200, 2: 500, 3: 200, 4: 200}
        assert client.get("/health").status_code == 200


def test_token_is_asked_for():
    with TestClient(create_app(models(bright()), token="secret")) as client:
        assert client.get("/health").status_code == 200 and client.get("/").status_code == 200
        for wrong in ({}, {"authorization": "Bearer secre"}, {"authorization": "Basic secret"}):
            for path in ("/classes", "/metrics", "/gallery"):
                assert client.get(path, headers=wrong).status_code == 401
            refused = client.post("/predict", content=encoded(photo()), headers=wrong)
            assert refused.status_code == 401 and "token" in refused.json()["error"]
        right = {"authorization": "Bearer secret"}
        assert client.post("/predict", content=encoded(photo()), headers=right).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/openapi.json", "/page/page.js", "/page/page.css", "/page/stage.js"]
)
def test_pages_name_no_other_server(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    for word in ("http://", "https://", "//cdn", "unsafe-inline"):
        assert word not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy


def test_openapi_describes_the_routes(client):
    routes = client.get("/openapi.json").json()["paths"]
    assert {"/predict", "/classes", "/health", "/metrics"} <= set(routes)
    assert "multipart/form-data" in routes["/predict"]["post"]["requestBody"]["content"]


def test_folder_that_changes_is_told(tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with TestClient(create_app(models(bright(), folder=folder))) as client:
        before = client.get("/health").json()
        (folder / "config.json").unlink()
        after = client.get("/health").json()
        assert client.post("/predict", content=encoded(photo())).status_code == 200
    assert before["models"][0]["changed_on_disk"] is False and "remark" not in before
    assert after["status"] == "ok" and after["models"][0]["changed_on_disk"] and "restart" in after["remark"]


def test_gallery_shows_the_pictures_of_the_card(tmp_path: Path):
    folder, model = tmp_path / "model", bright()
    model.save(folder)
    with TestClient(create_app(models(model, folder=folder))) as client:
        assert client.get("/gallery").json() == []
    text = '<script>alert("1")</script> ](x)'
    replace_pictures(folder, [card_picture(text, Image.fromarray(photo()))])
    with TestClient(create_app(models(model, folder=folder))) as client:
        (listed,) = client.get("/gallery").json()
        assert listed["title"] == text
        found = client.get(listed["url"])
        assert found.headers["content-type"] == "image/jpeg"
        assert Image.open(io.BytesIO(found.content), formats=["JPEG"]).size == (20, 12)
        for path in ("/gallery/0/1", "/gallery/1/0", "/gallery/0/-1", "/gallery/0/..%2f..%2fREADME.md"):
            assert client.get(path).status_code in (400, 404)
    (folder / "pictures" / "1.jpg").write_bytes(encoded(photo(), "JPEG"))
    with pytest.raises(UserError, match="is damaged"):
        create_app(models(model, folder=folder))


def test_closed_background_is_closed():
    model = bright()
    model.closed = True
    with TestClient(create_app(models(model))) as client:
        found = client.post("/predict?answer=areas", content=encoded(photo())).json()
    assert set(found["areas"]) == {"grey", "white"}


def test_models_of_other_runtimes_give_the_same_mask(model):
    class Arrays:
        classes, colours, images = model.classes, model.colours, model.images

        def probabilities(self, images_BHW3: np.ndarray) -> np.ndarray:
            found = [model.predict(image, probabilities=True).probabilities for image in images_BHW3]
            return np.stack(found)

    predictor = ArrayPredictor(Arrays())
    (scores,) = predictor.run([predictor.prepare(photo())])
    ids, confidence = predictor.answer(scores, (12, 20))
    wanted = model.predict(photo(), probabilities=True)
    assert np.array_equal(ids, wanted.ids)
    assert np.allclose(confidence, wanted.probabilities.max(0), atol=1e-4)


@pytest.mark.parametrize("resize", ["bilinear", "aligned", "nearest"])
def test_scores_come_to_the_size_of_the_image_as_the_network_means_it(resize):
    """Adopted networks may align corners, or not interpolate at all."""
    model = bright(size=4)
    model.network.resize = resize
    expected = model.predict(photo(), probabilities=True)
    predictor = staged(model)
    (scores,) = predictor.run([predictor.prepare(photo())])
    ids, confidence = predictor.answer(scores, (12, 20))
    assert np.allclose(confidence, expected.probabilities.max(0), atol=1e-5)
    assert (ids == expected.ids).mean() > 0.95
