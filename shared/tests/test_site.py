"""The site as files: everything resolves, nothing is loaded from elsewhere, nothing of the data becomes markup."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from hostile_paper import EVIL, README
from hypothesis import given
from hypothesis import strategies as st

from claimlab import Check, ClaimlabError, Interval, Measure, Verdict, load_paper, paper_names, report
from claimlab.readme import Readme
from claimlab.site import WIDTH, Page, build, drawing, timings


class Document(HTMLParser):
    """Elements with their attributes, and the text that is shown."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "link", "img", "br", "hr", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"{self.path}: </{tag}> closes nothing"

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def of(self, *tags: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in tags]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


@pytest.fixture(scope="module")
def documents(site):
    return {path.relative_to(site).as_posix(): Document(path) for path in sorted(site.rglob("*.html"))}


@pytest.fixture(scope="module")
def evil(documents):
    return documents["papers/evil.html"]


def words(text: str) -> str:
    return " ".join(text.split())


def test_there_is_a_page_for_every_paper(documents):
    papers = {f"papers/{name}.html" for name in ("evil", *paper_names())}
    assert documents.keys() == {"index.html", "verdicts.html", "benchmarks.html", *papers}


def test_links_and_files_resolve_and_nothing_is_loaded_from_elsewhere(site, documents):
    for name, document in documents.items():
        for tag, attributes in document.elements:
            assert not {"srcset", "data", "poster", "action", "background"} & attributes.keys()
            for target in (attributes[key] for key in ("href", "src") if key in attributes):
                if tag == "a" and re.match(r"https?://|mailto:", target):
                    continue
                if tag == "link" and attributes["rel"] == "icon":
                    assert target.startswith("data:")
                    continue
                assert not re.match(r"[a-z]+:|//", target), f"{name}: <{tag}> leads to {target}"
                path, _, fragment = target.partition("#")
                file = (document.path.parent / unquote(path)).resolve() if path else document.path
                assert file.is_file() and file.is_relative_to(site.resolve()), f"{name}: {target} does not exist"
                if fragment:
                    ids = documents[file.relative_to(site.resolve()).as_posix()].ids
                    assert ids.count(fragment) == 1, f"{name}: {target}: no such place"
    css = (site / "style.css").read_text()
    assert "url(" not in css and "@import" not in css


def test_no_text_becomes_markup(documents):
    for name, document in documents.items():
        assert len(document.of("script")) == 1, f"{name}: only the sorting is a script"
        assert not document.of("iframe", "object", "embed", "form", "base")
        for tag, attributes in document.elements:
            assert not [a for a in attributes if a.startswith("on")], f"{name}: <{tag}> has a handler"
            assert not any("javascript:" in attributes.get(key, "") for key in ("href", "src"))
            assert tag != "img" or attributes["src"].startswith("../figures/")
    shown = words(EVIL)
    assert documents["papers/evil.html"].text.count(shown) > 25
    assert documents["benchmarks.html"].text.count(shown) == 9
    assert shown in documents["index.html"].text


def test_documents_are_well_formed_and_accessible(documents):
    for name, document in documents.items():
        tags = [tag for tag, _ in document.elements]
        assert tags.count("h1") == tags.count("main") == tags.count("header") == tags.count("footer") == 1, name
        assert document.of("html")[0]["lang"] == "en" and not document.open
        assert len(document.ids) == len(set(document.ids)), name
        assert all(cell.get("scope") in ("col", "row") for cell in document.of("th")), name
        assert all(image["alt"] and image["width"] and image["height"] for image in document.of("img")), name
        first = next(attributes for tag, attributes in document.elements if tag == "a")
        assert first["class"] == "skip" and first["href"] == "#main"


def test_every_claim_is_shown_with_what_the_readme_says(site, documents, hostile):
    for paper in (hostile.paper, *map(load_paper, paper_names())):
        document = documents[f"papers/{paper.slug}.html"]
        text = document.text
        best = report.best_recorded(paper)
        assert best is not None
        assert words(report.record_sentence(paper, *best)) in text
        assert words(report.other_seeds_sentence(paper, best[0])) in text
        for result in best[1]:
            assert f"claim-{result.claim.id}" in document.ids
            assert words(result.claim.source) in text
            for check in result.checks:
                told = f"{report.check_name(check)} {report.check_value(check)} criterion: {check.check}"
                assert words(told) in text, told
            for key, measure in result.shown:
                assert words(f"{report.spoken(key)}: {report.interval(measure)}") in text
        row = documents["index.html"].text.split(f" {paper.slug} ", 1)[1]
        counts = [str(count) for count in report.verdict_counts(best[1]).values()]
        assert f"{paper.info.evidence} {' '.join(counts)} {best[0]} scale" in row


def test_each_row_says_how_to_run_it_again(evil):
    assert "claimlab run evil --scale laptop --experiment measuring" in evil.text
    assert "make reproduce-evil runs everything" in evil.text
    assert "about 5,000 min" in evil.text


def test_a_fresh_run_stands_beside_the_record(evil, documents):
    assert "A fresh run stands beside the record" in evil.text and "It has moved away from the record." in evil.text
    assert "measuring.rate 10 7 ± 0.05 moved" in evil.text
    assert "7 (3 seeds)" in evil.text  # the claim's fresh value beside the recorded 10 (7.5 to 12.5, 3 seeds)
    assert "10 (7.5 to 12.5, 3 seeds)" in evil.text
    assert "laptop scale moved" in documents["index.html"].text


def test_the_readme_is_cut_into_its_parts(evil):
    readme = Readme.parse(README)
    assert (
        "The <em>idea</em>" in readme.idea and "The idea goes on." in readme.idea and "Words after" not in readme.idea
    )
    assert "print" in readme.example and "Words after the example." in readme.example
    assert readme.note.strip() == "<p>A note beside the table.</p>"
    assert [(f.name, f.alt) for f in readme.figures] == [
        ("curve.png", 'A "curve" <b>bold</b>'),
        ("missing.png", "Not drawn"),
    ]
    assert readme.figures[0].caption.strip() == "<p>Caption of the curve.</p>"
    assert [s.title for s in readme.sections] == ["Reconstructions", "Limits <i>all</i>"]
    assert "stale" not in evil.text and "Not drawn" not in evil.text and "Caption of the curve." in evil.text
    links = [a.get("href") for a in evil.of("a")]
    assert "https://example.org/x" in links and not any("README" in (link or "") for link in links)


def test_a_paper_without_record_readme_or_results(toy):
    result = toy("report", "toy", "--out", "the site")
    assert result.returncode == 0 and "wrote the site" in result.stdout
    text = Document(toy.folder / "the site" / "papers" / "toy.html").text
    assert "Nothing recorded yet" in text and "The line has slope two." in text and "criterion: 2 ± 1e-09" in text
    assert "needs 8 GPUs" in text and "– not tested" in text and "✓" not in text
    assert "Nothing is recorded yet. make bench" in Document(toy.folder / "the site" / "benchmarks.html").text


def test_a_run_of_a_paper_without_record_is_shown(toy):
    toy("run", "toy", "--scale", "laptop", "--experiment", "line")
    assert toy("report", "toy", "--out", "site").returncode == 0
    text = Document(toy.folder / "site" / "papers" / "toy.html").text
    assert "There is no record to compare it with." in text and "✓ reproduced" in text and "not run" in text
    assert "no measure" not in text, "claims of experiments that did not run are not judged"


def test_an_unwritable_folder_is_one_clear_line(toy):
    (toy.folder / "taken").write_text("")
    result = toy("report", "toy", "--out", "taken")
    assert result.returncode == 2 and "cannot write taken/index.html" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_site_without_papers_says_what_to_do(tmp_path):
    first = build([], tmp_path, out=tmp_path / "results", benchmarks=tmp_path / "none.json")
    assert "No paper is installed here." in Document(first).text


def test_the_same_records_give_the_same_bytes(site, hostile, tmp_path):
    build([hostile.paper], tmp_path, out=hostile.results, benchmarks=hostile.benchmarks)
    page = "papers/evil.html"
    assert (tmp_path / page).read_bytes() == (site / page).read_bytes()


def test_benchmarks_tell_a_missed_target(documents):
    text = documents["benchmarks.html"].text
    assert (
        "0.5 (0.45 to 0.55) ≤ 1 " in text and "2 (1.8 to 2.2) ≤ 1 (missed)" in text and "1.5 (1.35 to 1.65) – " in text
    )


@pytest.mark.parametrize("content", ["{", '[{"paper": "x"}]', "[1]"])
def test_damaged_timings_are_named(tmp_path, content):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(ClaimlabError, match=r"results\.json is damaged"):
        timings(path)


finite = st.floats(-1e9, 1e9)


@given(st.tuples(finite, finite, finite).map(sorted), finite, st.sampled_from(["above", "below"]))
def test_drawings_agree_with_the_verdict(bounds, criterion, kind):
    low, value, high = bounds
    check = Check(measure="m", **{kind: criterion})
    interval = Interval(value, low, high)
    d = drawing(interval, check.accepted)
    assert d is not None and d.span is not None
    assert 0 <= d.accepted[0] <= d.accepted[1] <= WIDTH
    assert 0 < d.span[0] <= d.value <= d.span[1] < WIDTH
    verdict = check.judge(Measure("m", (value,), interval))
    if verdict is Verdict.REPRODUCED:
        assert d.accepted[0] <= d.span[0] and d.span[1] <= d.accepted[1]
    elif verdict is Verdict.NOT_REPRODUCED:
        assert d.span[1] <= d.accepted[0] or d.span[0] >= d.accepted[1]


def test_drawings_without_interval_or_value():
    nan, inf = math.nan, math.inf
    assert drawing(Interval(nan, nan, nan), (0, inf)) is None
    assert drawing(Interval(inf, inf, inf), (0, inf)) is None
    assert drawing(Interval(1.0, nan, nan), (0, inf)).span is None
    exact = drawing(Interval(0.0, 0.0, 0.0), (-inf, 0.0))
    assert exact.value == exact.bounds[0] == exact.accepted[1] == WIDTH / 2
    assert drawing(Interval(2.0, 1.0, 3.0), []).accepted == (0.0, 0.0)
    between = drawing(Interval(0.5, 0.4, 0.6), (0.0, 1.0))
    assert len(between.bounds) == 2 and between.value == WIDTH / 2


def test_a_damaged_fresh_result_is_named(hostile, tmp_path):
    folder = tmp_path / "evil" / "laptop" / "measuring" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({"measures": 3}))
    with pytest.raises(ClaimlabError, match="is damaged"):
        _ = Page(hostile.paper, tmp_path).fresh
