"""The page in a real browser: fill, watch, scrub, lock, fill again; mistakes as sentences; no room for markup."""

import re
import shutil

import pytest
from served import LONG, Served, small_model

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with Playwright (extra dev)")
expect = playwright.expect
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed; the page needs one to be tested")

TEXT = "My ___{3} garden <b>and</b> ___{2,4} \\___."


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served("--model", small_model(tmp_path_factory.mktemp("page") / "tiny"), key="key") as server:
        yield server


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


class Page:
    """A page with the key typed in, and all that went wrong on it or was fetched for it."""

    def __init__(self, browser, served, **how):
        self.page = browser.new_page(**how)
        self.wrong, self.fetched = [], []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.fetched.append(request.url))
        self.page.goto(f"http://127.0.0.1:{served.port}/")
        self.page.locator("#more").evaluate("element => { element.open = true; }")
        self.page.locator("#key").fill("key")
        self.page.locator("#n").fill("3")

    def __getattr__(self, name):
        return self.page.locator("#" + name)

    def words(self):
        return self.page.locator(".word")

    def places(self):
        """Where each word stands now: (text, x, y)."""
        labels = self.page.locator("#stage g text").all()
        return [
            (each.text_content(), float(each.get_attribute("x")), float(each.get_attribute("y"))) for each in labels
        ]

    def filled(self):
        expect(self.status).to_have_text(re.compile("fills? in"), timeout=30_000)
        expect(self.go).to_be_enabled()


@pytest.fixture
def page(browser, served):
    made = Page(browser, served, viewport={"width": 1000, "height": 900})
    yield made
    assert made.wrong == []
    assert all(url.startswith(f"http://127.0.0.1:{served.port}/") for url in made.fetched)
    made.page.close()


def test_fill_watch_scrub_lock_and_fill_again(page):
    page.text.fill(TEXT)
    page.page.keyboard.press("Control+Enter")
    page.filled()
    choices = page.page.locator("#fills button")
    assert 1 <= choices.count() <= 3
    assert "<b>and</b>" in choices.first.text_content()  # markup is text
    assert choices.first.locator(".what > :not(b)").count() == 0
    assert choices.first.text_content().count("___") == 1  # the literal one
    scores = [float(each.split("%")[0].replace("−", "-")) for each in page.page.locator(".score").all_text_contents()]
    assert scores == sorted(scores, reverse=True)

    # Time: the front and the words move with the slider, paths are drawn up to it.
    end = page.places()
    assert all(text not in ("", "░") for text, _, _ in end)
    page.time.fill("0")
    start = page.places()
    assert sum(text == "░" for text, _, _ in start) >= 5
    assert all(a[1] < b[1] for a, b in zip(start, end, strict=True))
    assert sum(abs(a[2] - b[2]) > 1 for a, b in zip(start, end, strict=True)) > 3
    expect(page.when).to_have_text("step 0 of 16")
    expect(page.now).to_contain_text("░")
    page.play.click()
    expect(page.when).to_have_text("step 16 of 16", timeout=20_000)
    expect(page.play).to_have_text("Play", timeout=20_000)
    expect(page.now).not_to_contain_text("░")

    # A word, then a whole fill is locked; the rest is filled anew.
    word = page.words().nth(1)
    kept = word.text_content()
    word.click()
    expect(page.words().nth(1)).to_have_attribute("aria-pressed", "true")
    page.page.get_by_label("Lock fill 2").click()
    second = page.page.locator('.word[data-at^="2."]').all_text_contents()
    expect(page.locks).to_contain_text(f"{1 + len(second)} words are locked")
    for temperature in ("1", "2"):
        page.temperature.fill(temperature)
        page.again.click()
        page.filled()
        for choice in range(page.page.locator("#fills button").count()):
            page.page.locator("#fills button").nth(choice).click()
            assert page.words().nth(1).text_content() == kept
            assert page.page.locator('.word[data-at^="1."]').count() == 3
            assert page.page.locator('.word[data-at^="2."]').all_text_contents() == second
            assert page.page.locator('.word[aria-pressed="true"]').count() == 1 + len(second)
    for name in ("1", "2"):
        button = page.page.get_by_label(f"Lock fill {name}")
        if button.get_attribute("aria-pressed") == "false":
            button.click()
    page.again.click()
    expect(page.error).to_have_text("Every word is locked; unlock one to fill again.")


def test_frames_are_drawn_as_they_come(page):
    page.text.fill("The boat ___{20} at dawn.")
    page.steps.fill("128")
    page.go.click()
    seen = set()
    while "fill" not in page.status.text_content():
        seen.add(page.when.text_content())
    assert len(seen) > 2
    page.filled()


def test_stopping_words_in_order_and_other_options(page, served):
    page.text.fill(LONG["text"])
    page.n.fill("16")
    page.steps.fill("8")
    page.go.click()
    expect(page.watch).to_be_visible()
    page.stop.click()
    expect(page.status).to_have_text("stopped")
    expect(page.go).to_be_enabled()
    page.text.fill("boat ___ dawn")
    page.n.fill("1")
    page.free.check()
    expect(page.text).to_have_value("boat dawn")
    page.steps.fill("4")
    page.terminal.select_option("")
    page.go.click()
    page.filled()
    text = page.sentence.text_content()
    assert 0 <= text.index("boat") < text.index("dawn")
    if page.words().count():
        page.words().first.click()
        fill = page.page.locator('.word[aria-pressed="true"]').all_text_contents()
        page.again.click()
        page.filled()
        assert page.page.locator('.word[aria-pressed="true"]').all_text_contents() == fill


def test_mistakes_are_sentences(page):
    page.text.fill("a ___{3 b")
    page.go.click()
    expect(page.error).to_contain_text("is not closed")
    page.text.fill("a ___{1} b")
    page.go.click()
    page.filled()
    page.text.fill("another ___")
    page.again.click()
    expect(page.error).to_contain_text("The text has changed")
    page.n.fill("99")
    page.more.evaluate("element => { element.open = false; }")
    page.go.click()
    expect(page.error).to_contain_text("99")
    page.more.evaluate("element => { element.open = true; }")
    page.n.fill("1")
    page.key.fill("wrong")
    page.text.fill("a ___ b")
    page.go.click()
    expect(page.error).to_contain_text("the API key is wrong")
    expect(page.key).to_be_focused()
    page.page.route("**/v1/infill", lambda route: route.abort())
    page.go.click()
    expect(page.error).to_contain_text("cannot be reached")


def test_narrow_and_dark(browser, served):
    page = Page(browser, served, viewport={"width": 340, "height": 700}, color_scheme="dark")
    page.text.fill("My sister ___{4} the garden, and the harbour ___{3}.")
    page.go.click()
    page.filled()
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 340
    ink, ground = page.page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert sum(map(int, re.findall(r"\d+", ink)[:3])) > 400 > sum(map(int, re.findall(r"\d+", ground)[:3]))
    unlabelled = page.page.locator("input:visible, select:visible, textarea:visible").evaluate_all(
        "all => all.filter((each) => !each.labels?.length && !each.getAttribute('aria-label')).map((each) => each.id)"
    )
    assert unlabelled == []
    assert page.wrong == []
    page.page.close()
