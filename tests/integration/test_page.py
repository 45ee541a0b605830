"""The page in a real browser: fill, watch, scrub, lock, fill again; mistakes as sentences; no room for markup."""

import json
import re
import shutil
from itertools import groupby, pairwise

import pytest
from axe_playwright_python.sync_playwright import Axe
from served import LONG, THREADS, Served, small_model

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with Playwright (extra dev)")
expect = playwright.expect

TEXT = "My ___{3} garden <b>and</b> ___{2,4} \\___."


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served("--model", small_model(tmp_path_factory.mktemp("page") / "tiny"), key="key") as server:
        yield server


@pytest.fixture(scope="module")
def writing(tmp_path_factory):
    """A server whose model writes, as the embedded one does: of a free text it fills some gaps only."""
    folder = small_model(tmp_path_factory.mktemp("page") / "writes", writes=True)
    with Served("--model", folder, key="key") as server:
        yield server


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        found = [each for each in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if each]
        assert found, "Chromium is missing; install it (apt-get install chromium)"
        arguments = ["--no-sandbox", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=found[0], args=arguments)
        yield browser
        browser.close()


class Page:
    """A page with the key typed in, and all that went wrong on it or was fetched for it."""

    def __init__(self, browser, served, **how):
        self.page = browser.new_page(**how)
        self.wrong, self.fetched = [], []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.fetched.append(request.url))
        self.page.on("console", lambda said: self.wrong.append(said.text) if "Content Security" in said.text else None)
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

    def given(self):
        """The given text as it stands between what is filled in or still masked."""
        spans = self.page.locator("#now span")
        kinds = spans.evaluate_all("spans => spans.map((each) => [each.className === 'given', each.textContent])")
        return [
            "".join(text for _, text in some).split() for given, some in groupby(kinds, lambda each: each[0]) if given
        ]

    def clean(self):
        """Nothing that axe-core would report."""
        found = Axe().run(self.page).response["violations"]
        assert not found, json.dumps([(each["id"], [node["html"] for node in each["nodes"]]) for each in found])

    def player_above(self):
        return self.time.bounding_box()["y"] < self.stage.bounding_box()["y"]

    def filled(self):
        expect(self.status).to_have_text(re.compile("fills? in"), timeout=30_000)
        expect(self.go).to_be_enabled()


@pytest.fixture
def page(browser, served):
    made = Page(
        browser, served, viewport={"width": 1000, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    yield made
    assert made.wrong == []
    assert all(url.startswith(f"http://127.0.0.1:{served.port}/") for url in made.fetched)
    made.page.close()


def test_fill_watch_scrub_lock_and_fill_again(page):
    page.text.fill(TEXT)
    page.terminal.select_option("grid")
    page.page.keyboard.press("Control+Enter")
    page.filled()
    choices = page.page.locator("#fills button")
    assert 1 <= choices.count() <= 3
    assert "<b>and</b>" in choices.first.text_content()  # markup is text
    assert choices.first.locator(".what > :not(b)").count() == 0
    assert choices.first.text_content().count("___") == 1  # the literal one
    scores = [float(each.replace("−", "-")) for each in page.page.locator(".score").all_text_contents()]
    assert scores == sorted(scores, reverse=True)

    # Time: the front and the words move with the slider, paths are drawn up to it, the text stays in reading order.
    choices.first.click()
    whole = page.now.text_content()
    expect(page.when).to_have_text("step 16 of 16")
    end = page.places()
    assert all(text not in ("", "░") for text, _, _ in end)
    page.time.focus()
    page.page.keyboard.press("Home")
    expect(page.when).to_have_text("step 0 of 16")
    start = page.places()
    assert sum(text == "░" for text, _, _ in start) >= 5
    assert all(a[1] < b[1] for a, b in zip(start, end, strict=True))
    assert sum(abs(a[2] - b[2]) > 1 for a, b in zip(start, end, strict=True)) > 3
    given = page.page.locator("#now .given").all_text_contents()
    assert given == ["My ", " garden <b>and</b> ", " ___."]
    assert page.page.locator("#now .masked").count() >= 5
    page.page.keyboard.press("ArrowRight")
    expect(page.when).to_have_text("step 1 of 16")  # whole steps
    expect(page.time).to_have_value("1")
    page.play.click()
    expect(page.when).to_have_text("step 16 of 16", timeout=20_000)
    expect(page.play).to_have_text("Play", timeout=20_000)
    assert page.now.text_content() == whole == textual(choices.first)

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
    expect(page.locks).to_have_text("Every word is locked; unlock one to fill again.")


def textual(choice):
    return choice.locator(".what").text_content()


def test_the_first_answer_shows_before_the_others(page):
    page.text.fill("The boat ___{20} at dawn.")
    page.steps.fill("64")
    page.n.fill("4")
    page.page.evaluate(
        """() => { window.seen = []; new MutationObserver(() => {
          const at = (id) => document.getElementById(id);
          const said = [at("status").textContent, at("fills").children.length];
          if (String(said) !== String(window.seen.at(-1))) window.seen.push(said);
        }).observe(document.body, {subtree: true, childList: true, characterData: true}); }"""
    )
    page.go.click()
    page.filled()
    seen = page.page.evaluate("window.seen")
    steps = [text for text, _ in seen if text.startswith("step")]
    assert len(set(steps)) > 2
    assert ["the first of 4; the others follow", 1] in seen
    assert seen[-1][1] == page.page.locator("#fills button").count() >= 2


def test_a_long_text_is_shown_whole_and_the_chart_fits_the_window(page):
    text = "The boat ___{1} and " * 14 + "rest."
    page.text.fill(text)
    page.n.fill("1")
    page.steps.fill("2")
    page.go.click()
    page.filled()
    expect(page.part).to_be_visible()
    for part in range(page.part.locator("option").count()):
        page.part.select_option(str(part))
        for step in ("Home", "End"):
            page.time.focus()
            page.page.keyboard.press(step)
            assert page.page.locator("#now .given").all_text_contents() == [
                *["The boat ", *[" and The boat "] * 13],
                " and rest.",
            ]
    assert page.stage.bounding_box()["height"] < 900
    assert page.player_above()


BESIDE = """() => [...document.querySelectorAll("#stage g")].flatMap((group) => {
  const label = group.querySelector("text"), dot = group.querySelector("circle");
  if (!label || label.getAttribute("visibility") === "hidden" || !label.textContent) return [];
  const [a, b] = [label, dot].map((each) => each.getBoundingClientRect());
  return [[label.textContent, a.y + a.height / 2, b.y + b.height / 2, group.classList.contains("response")]];
})"""
SCRUB = """(step) => { const time = document.getElementById("time"); time.value = step;
  time.dispatchEvent(new Event("input")); }"""
LONG_TEXT = (
    "When the storm had passed, the people who had waited in the harbour since noon ___{4}, and then they walked "
    "slowly down to the water to see whether the small boat ___{3} before the garden was green again."
)


@pytest.mark.parametrize("width", [320, 1400])
@pytest.mark.parametrize(
    ("text", "terminal"),
    [
        ("boat dawn garden sister rains", ""),
        ("boat dawn garden sister rains", "grid"),
        ("My ___{3} garden and ___{2}.", ""),
        (LONG_TEXT, ""),
        (LONG_TEXT, "grid"),
        ("The boat ___{16} and " * 2 + "rest.", "random"),
    ],
)
@pytest.mark.parametrize("model", ["served", "writing"])
def test_words_end_in_reading_order_with_their_labels_beside_them(request, browser, model, text, terminal, width):
    page = Page(browser, request.getfixturevalue(model), viewport={"width": width, "height": 800})
    page.text.fill(text)
    page.free.set_checked("___" not in text)
    page.terminal.select_option(terminal)
    page.n.fill("2")
    page.go.click()
    page.filled()
    assert not page.watch.is_hidden()
    for choice in page.page.locator("#fills button").all():
        choice.click()
        page.time.focus()
        page.page.keyboard.press("End")
        whole = textual(choice)
        assert page.now.text_content() == whole
        ended = page.given()
        for step in range(int(page.time.get_attribute("max"))):  # what is known before is in the order it ends up in
            page.page.evaluate(SCRUB, step)
            known = iter(whole)
            assert all(each in known for each in re.sub(r"[\s░]|___", "", page.now.text_content())), step
            if model == "writing":  # it knows where text goes before it writes
                assert page.given() == ended, step
        page.page.evaluate(SCRUB, step + 1)
        beside = sorted(page.page.evaluate(BESIDE), key=lambda label: label[1])
        at = 0
        for label, middle, dot, _ in beside:
            assert abs(middle - dot) <= 3
            at = whole.index(label.strip("␣"), at) + len(label.strip("␣"))
        # What is filled in has labels before what was given has; ten pixels are the least for one.
        tokens = page.page.locator("#stage .response").count()
        labels = [label.strip("␣") for label, *_, response in beside if response]
        assert len(labels) == tokens or 10 * tokens > page.stage.bounding_box()["height"] - 44
        if len(labels) == tokens and page.part.is_hidden():
            assert "".join(labels) == "".join("".join(choice.locator(".what b").all_text_contents()).split())
        assert all(below[1] - above[1] >= 9.9 for above, below in pairwise(beside))
    assert page.wrong == []
    page.page.close()


def test_edit_copy_link_and_reload(page, browser, served):
    page.text.fill("My ___{2} garden and ___{2}.")
    page.seed.fill("4")
    page.temperature.fill("1.5")
    page.go.click()
    page.filled()
    shown = [textual(each) for each in page.page.locator("#fills button").all()]
    page.page.locator("#fills button").nth(1).click()
    page.link.click()
    expect(page.link).to_have_text("Copied")
    link = page.page.evaluate("navigator.clipboard.readText()")
    page.copy.click()
    assert page.page.evaluate("navigator.clipboard.readText()") == shown[1]
    other = browser.new_page()
    other.goto(link.split("#")[0])
    other.locator("#more").evaluate("element => { element.open = true; }")
    other.locator("#key").fill("key")
    other.evaluate("link => { location.hash = link; }", link.split("#")[1])
    expect(other.locator("#status")).to_have_text(re.compile("fills? in"), timeout=30_000)
    assert [textual(each) for each in other.locator("#fills button").all()] == shown
    assert textual(other.locator('#fills button[aria-pressed="true"]')) == shown[1]
    other.close()

    page.edit.click()
    page.page.get_by_label("Word 1 of fill 1").fill("tidy")
    page.page.keyboard.press("Tab")
    page.edit.click()
    changed = textual(page.page.locator("#fills button").nth(1))
    assert changed.startswith("My tidy ")
    expect(page.page.locator('.word[aria-pressed="true"]')).to_have_text("tidy")
    page.again.click()
    page.filled()
    assert all(textual(each).startswith("My tidy ") for each in page.page.locator("#fills button").all())
    page.page.reload()
    expect(page.text).to_have_value("My ___{2} garden and ___{2}.")
    expect(page.seed).to_have_value("4")


def test_the_start_page_has_examples_to_try(page):
    examples = page.page.locator("#examples button")
    assert examples.count() >= 5
    examples.first.click()
    page.filled()
    expect(page.start).to_be_hidden()


def test_stopping_words_in_order_and_other_options(page, served):
    page.text.fill(LONG["text"])
    page.n.fill("16")
    page.steps.fill("8")
    # Both in one go: a quick server would be done before a second click.
    page.page.evaluate("() => { document.querySelector('#go').click(); document.querySelector('#stop').click(); }")
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


def test_mistakes_are_sentences_and_clear_what_was_there(page):
    page.text.fill("a ___{1} b")
    page.go.click()
    page.filled()
    page.text.fill("a ___{3 b")
    page.go.click()
    expect(page.error).to_contain_text("is not closed")
    expect(page.found).to_be_hidden()
    expect(page.watch).to_be_hidden()
    page.text.fill("no blank")
    page.go.click()
    expect(page.error).to_contain_text("tick “only words in order”")
    page.text.fill(" ")
    page.go.click()
    expect(page.error).to_contain_text("The text is empty")
    page.text.fill("a ___ b")
    page.n.fill("99")
    page.more.evaluate("element => { element.open = false; }")
    page.go.click()
    expect(page.error).to_have_text("Fills must be a whole number from 1 to 16.")
    expect(page.n).to_be_focused()
    page.n.fill("1")
    page.key.fill("wrong")
    page.go.click()
    expect(page.error).to_contain_text("the API key is wrong")
    expect(page.key).to_be_focused()
    page.page.route("**/v1/infill", lambda route: route.abort())
    page.go.click()
    expect(page.error).to_contain_text("cannot be reached")


def test_whoever_waits_is_told(page, served):
    opened = [served.open("POST", "/v1/infill", LONG, {"Authorization": "Bearer key"}) for _ in range(THREADS)]
    while served.health()["at_work"] < THREADS:
        pass
    page.text.fill("a ___{1} b")
    page.go.click()
    expect(page.status).to_have_text("waiting; you are next")
    for each in opened:
        each.close()
    page.filled()


@pytest.mark.parametrize(("width", "height"), [(320, 640), (768, 900), (1400, 900)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_anyone_can_use_it(browser, served, width, height, scheme):
    """axe-core finds nothing, and nothing is wider or the chart taller than the window; padlocks can be hit."""
    page = Page(browser, served, viewport={"width": width, "height": height}, color_scheme=scheme)
    page.clean()
    page.text.fill("My sister ___{4} the garden, and the harbour ___{3}.")
    page.go.click()
    page.filled()
    page.page.locator(".whole").first.click()
    page.clean()
    page.edit.click()
    page.clean()
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.stage.bounding_box()["height"] < height
    assert page.player_above()
    for lock in page.page.locator(".whole").all():
        box = lock.bounding_box()
        assert min(box["width"], box["height"]) >= 24
    page.edit.click()
    page.text.fill("a ___{3 b")
    page.go.click()
    expect(page.error).to_be_visible()
    page.clean()
    ink, ground = page.page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    bright = [sum(map(int, re.findall(r"\d+", each)[:3])) for each in (ink, ground)]
    assert (bright[0] > 400 > bright[1]) == (scheme == "dark")
    assert page.wrong == []
    page.page.close()
