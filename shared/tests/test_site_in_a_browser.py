"""The site in a real browser: Chromium without a window, on the files as they lie on the disk."""

import shutil

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)")
SIZES = {"phone": {"width": 390, "height": 844}, "desk": {"width": 1280, "height": 900}}


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def troubles():
    """What a page complained about, or asked for from elsewhere."""
    return []


@pytest.fixture
def open_page(browser: Browser, site, troubles):
    """Open a page of the site in a window of its own for this test; what it complains about is collected."""
    contexts: list[BrowserContext] = []

    def window(**options) -> Page:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"{page.url}: {error}"))
        page.on("requestfailed", lambda request: troubles.append(f"{page.url}: {request.url} failed"))
        page.on("request", lambda request: asked(page, request.url))
        return page

    def asked(page: Page, url: str) -> None:
        if not url.startswith(("file:", "data:")):
            troubles.append(f"{page.url}: asks for {url}")

    def open_page(name: str, size: str = "desk", scheme: str = "light", **options) -> Page:
        page = window(viewport=SIZES[size], color_scheme=scheme, **options)
        page.goto((site / name).as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_load_quietly_and_fit_the_screen(open_page, site, troubles, size, scheme):
    page = open_page("index.html", size, scheme)
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        root = page.evaluate("(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.documentElement)")
        assert root[0] == root[1] == SIZES[size]["width"], f"{path.name} scrolls sideways"
        assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)"), (
            path.name
        )
        shade = map(int, page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)"))
        assert (sum(shade) > 600) == (scheme == "light")
        assert page.title() != "owned"
    assert not troubles


@pytest.mark.parametrize(("size", "scheme"), [("desk", "light"), ("phone", "dark")])
@pytest.mark.parametrize("name", ["index", "verdicts", "benchmarks", "papers/evil"])
def test_pages_keep_the_accessibility_rules(open_page, name, size, scheme):
    """axe-core: contrast, names, roles, landmarks, headings, tables."""
    results = Axe().run(open_page(f"{name}.html", size, scheme), options={"preload": False})
    assert results.violations_count == 0, results.generate_report()


def test_wide_tables_scroll_in_their_own_box(open_page):
    page = open_page("papers/evil.html", "phone")
    widths = page.locator(".scroll").evaluate_all("boxes => boxes.map(b => [b.scrollWidth, b.clientWidth])")
    assert any(inner > outer for inner, outer in widths) and all(outer <= 390 for _, outer in widths)


def column(page: Page, table: str, index: int) -> list[str]:
    return page.locator(f"{table} tbody tr").evaluate_all(f"rows => rows.map(r => r.cells[{index}].textContent.trim())")


def test_headers_sort_by_click_and_by_key(open_page, troubles):
    page = open_page("papers/evil.html")
    claims = "table.claims"
    assert [c[:3] for c in column(page, claims, 0)] == ["C10", "C2", "<sc", "c-n"]
    header = page.locator(f"{claims} th", has_text="verdict").first
    assert header.get_attribute("aria-sort") is None
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    ordered = ["reproduced", "inconclusive", "not tested", "not reproduced"]
    assert [c.split(" ", 1)[1] for c in column(page, claims, 4)] == ordered
    header.get_by_role("button").press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert [c.split(" ", 1)[1] for c in column(page, claims, 4)] == ordered[::-1]

    first = page.locator(f"{claims} thead th").first
    first.get_by_role("button").press("Space")
    assert first.get_attribute("aria-sort") == "ascending" and header.get_attribute("aria-sort") is None
    order = [c[:3] for c in column(page, claims, 0)]
    assert order.index("C2") < order.index("C10"), "numbers in names count as numbers"

    measures = "table[aria-labelledby=measures]"
    page.locator(f"{measures} thead th").nth(2).get_by_role("button").click()
    assert [c.split(" ")[0] for c in column(page, measures, 2)] == ["0.31", "0.667", "10", "?"]
    page.locator(f"{measures} thead th").nth(2).get_by_role("button").click()
    assert [c.split(" ")[0] for c in column(page, measures, 2)] == ["10", "0.667", "0.31", "?"], (
        "what is missing stays last"
    )
    assert not troubles


def test_the_first_tab_skips_to_the_content(open_page):
    page = open_page("index.html")
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    assert skip.inner_text() == "Skip to the content" and skip.bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_links_lead_from_the_scoreboard_to_a_claim(open_page, troubles):
    page = open_page("index.html", "phone")
    page.get_by_role("link", name="evil", exact=True).click()
    page.get_by_role("link", name="C10").first.click()
    assert page.url.endswith("papers/evil.html#claim-c-ten")
    page.get_by_role("link", name="Scoreboard").click()
    assert page.locator("h1").inner_text() == "NeurIPS 2026 reproductions"
    assert not troubles


def test_everything_is_there_without_scripts(open_page):
    page = open_page("papers/evil.html", java_script_enabled=False)
    assert page.get_by_role("cell", name="not reproduced", exact=True).is_visible()
    assert page.get_by_role("button").count() == 0
