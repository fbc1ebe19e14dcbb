"""The page in a real browser: headless Chromium through Playwright, against a real server."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving import OTHERS, bright, encoded, models, photo, serving

from segue.deploy.card_pictures import card_picture
from segue.deploy.model_folder import replace_pictures

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
SECONDS = 15_000
TEXTS = ["7 % of the pixels changed", "9 % changed, most often grey → <b>white</b>"]
DROP = """(content) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], "photo.png", { type: "image/png" }));
  for (const kind of ["dragover", "drop"])
    document.getElementById("drop").dispatchEvent(
      new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""
PASTE = """(content) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], "photo.png", { type: "image/png" }));
  document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true }));
}"""
PIXEL = """([x, y]) =>
  [...document.querySelector(".pane canvas").getContext("2d").getImageData(x, y, 1, 1).data]"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(
            executable_path=CHROMIUM, args=[*QUIET, "--headless", "--disable-sync"]
        )
        yield found
        found.close()


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("one") / "model"
    model = bright(size=120)
    model.save(folder)
    pictures = [card_picture(text, Image.fromarray(photo(256, 768))) for text in TEXTS]
    replace_pictures(folder, pictures)
    with serving(models(model, folder=folder)) as address:
        yield address


@pytest.fixture(scope="module")
def two() -> Iterator[str]:
    with serving(models(bright(), bright(OTHERS))) as address:
        yield address


@pytest.fixture
def opened(browser) -> Iterator[Any]:
    """Opens a page that may ask no other server and may raise no error."""
    pages, wrong = [], []

    def opens(address: str, **options: Any) -> Any:
        page = browser.new_context(**options).new_page()
        page.set_default_timeout(SECONDS)
        pages.append(page)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Security Policy" in said.text else None)
        own = (address.removesuffix("/docs"), "data:", "blob:")
        page.on("request", lambda asked: None if asked.url.startswith(own) else wrong.append(asked.url))
        page.goto(address)
        return page

    yield opens
    for page in pages:
        page.context.close()
    assert not wrong


def dropped(page: Any, pixels: np.ndarray, script: str = DROP) -> None:
    page.evaluate(script, base64.b64encode(encoded(pixels)).decode())
    page.wait_for_selector(".pane")


@pytest.mark.parametrize("script", [DROP, PASTE], ids=["drop", "paste"])
def test_drop_predict_and_toggle(opened, one, script):
    page = opened(one)
    dropped(page, photo(120, 200), script)
    assert "200 x 120" in page.inner_text("#state")
    names = [text.split("\n")[0] for text in page.locator("#classes label").all_inner_texts()]
    assert names == ["background", "grey", "white"]
    assert page.evaluate(PIXEL, [10, 60])[3] == 0, "background is not painted"
    painted = page.evaluate(PIXEL, [150, 60])
    assert painted[3] == 255
    page.get_by_label("white").uncheck()
    assert page.evaluate(PIXEL, [150, 60])[3] == 0
    page.click("#all")
    assert page.evaluate(PIXEL, [150, 60]) == painted and page.evaluate(PIXEL, [10, 60])[3] == 255
    page.click("#none")
    assert page.evaluate(PIXEL, [150, 60])[3] == 0
    page.locator("#opacity").fill("25")
    assert page.evaluate("getComputedStyle(document.querySelector('.pane canvas')).opacity") == "0.25"
    assert not page.locator("#views").is_visible()


@pytest.mark.parametrize("options", [{}, {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}])
def test_gallery_shows_the_pictures_of_the_card(opened, one, options):
    page = opened(one, **options)
    page.wait_for_selector("#gallery img")
    shown = page.locator("#gallery img")
    assert [shown.nth(place).get_attribute("alt") for place in range(shown.count())] == TEXTS
    assert page.locator("#gallery figcaption").all_inner_texts() == TEXTS, "names are no markup"
    assert page.evaluate("[...document.images].every((one) => one.decode().then(() => true))")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"


def test_hover_and_arrow_keys_name_the_class(opened, one):
    page = opened(one)
    dropped(page, photo(120, 200))
    box = page.locator(".pane").bounding_box()
    page.hover(".pane", position={"x": 0.75 * box["width"], "y": box["height"] / 2})
    assert page.inner_text("#readout").startswith("white, ") and "% sure" in page.inner_text(".tip")
    page.hover(".pane", position={"x": 0.25 * box["width"], "y": box["height"] / 2})
    assert page.inner_text("#readout").startswith("background, ")
    page.locator(".pane").focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#readout").startswith("white, ") and page.locator(".marker").is_visible()


def test_two_models_swipe_side_by_side_and_difference(opened, two):
    page = opened(two, viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True)
    dropped(page, photo(120, 200))
    assert page.locator(".divider").is_visible() and page.locator(".pane").count() == 1
    page.locator("#swipe").fill("100")
    old = page.evaluate(PIXEL, [150, 60])
    page.locator("#swipe").fill("0")
    assert old != page.evaluate(PIXEL, [150, 60]), "white here, dark there"
    page.hover(".pane", position={"x": 270, "y": 100})
    assert page.inner_text("#readout").split("\n")[0].startswith("model: white")
    assert page.inner_text("#readout").split("\n")[1].startswith("grown: dark")
    page.get_by_label("Side by side").check()
    assert page.locator(".pane").count() == 2
    page.get_by_label("Difference").check()
    assert page.evaluate(PIXEL, [150, 60])[3] == 255 and page.evaluate(PIXEL, [10, 60])[3] == 0
    assert "pixels differ" in page.inner_text("#changes") and "white → dark" in page.inner_text("#changes")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "no sideways scrolling"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"


def test_bad_file_then_a_good_one(opened, one, tmp_path: Path):
    page = opened(one)
    (tmp_path / "notes.png").write_text("this is no picture")
    page.set_input_files("#file", tmp_path / "notes.png")
    page.wait_for_selector("#error:not([hidden])")
    assert "not an image" in page.inner_text("#error") and not page.locator(".pane").count()
    dropped(page, photo())
    assert not page.locator("#error").is_visible()


def test_photo_of_40_megapixels(opened, one, tmp_path: Path):
    picture = Image.new("RGB", (7300, 5500))
    picture.paste((255, 255, 255), (3650, 0, 7300, 5500))
    picture.save(tmp_path / "large.jpg", quality=60)
    page = opened(one)
    page.set_input_files("#file", tmp_path / "large.jpg")
    page.wait_for_selector(".pane")
    assert "7300 x 5500" in page.inner_text("#state")
    assert page.evaluate("document.querySelector('.pane canvas').width") == 1600
    assert page.evaluate(PIXEL, [1200, 600])[3] == 255


def test_token_is_asked_for(opened):
    with serving(models(bright()), token="secret") as address:
        page = opened(address)
        page.wait_for_selector("#locked:not([hidden])")
        page.fill("#token", "secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#locked", state="hidden")
        dropped(page, photo())
        page.context.close()


def test_docs_list_the_routes(opened, one):
    page = opened(f"{one}/docs")
    page.wait_for_selector("#routes section")
    assert "/predict" in page.inner_text("#routes") and "curl -F file=@photo.jpg" in page.inner_text("#curl")
