"""`make docs`: the site has every page, its build has no warning, and pages look as on a code host."""

import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from pages import ROOT

DOCS = ROOT / "docs"
IN_NAV = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
BESIDE_DOCS = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
PAGES = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))} | {
    page: ROOT / name for name, page in BESIDE_DOCS.items()
}
STRUCTURE = set("ul ol li table tr td pre blockquote img h1 h2 h3 h4 p strong em code".split())


LOADED_FROM_ELSEWHERE = re.compile(r'<(?!a\b)\w[^>]* (?:src|href)="(?:https?:)?//')

# On a busy machine the build takes long.
pytestmark = pytest.mark.timeout(900)


class Tags(HTMLParser):
    """The number of times that each tag occurs in some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.numbers = Counter[str]()
        self.feed(html)

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.numbers[tag] += tag in STRUCTURE


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("material", "mkdocs_api_autonav", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr  # with --quiet it would be 0 in spite of warnings
    return folder


def test_every_page_is_in_the_navigation_once():
    made = [page for page in IN_NAV if page.startswith("commands/")]
    assert sorted(IN_NAV) == sorted([*PAGES, *made])


def test_every_page_has_the_structure_that_a_code_host_gives_it(site: Path):
    host = MarkdownIt("commonmark").enable("table")
    for page, path in PAGES.items():
        html = (site / page).with_suffix(".html").read_text()
        [article] = re.findall(r"<article.*?</article>", html, re.DOTALL)
        assert Tags(article).numbers == Tags(host.render(path.read_text())).numbers, page


def test_every_module_is_in_the_reference_except_generated_ones(site: Path):
    modules = [path for path in (ROOT / "innet").rglob("*.py") if "_pb2" not in path.name]
    pages = [path.relative_to(ROOT).with_suffix(".html") for path in modules]
    pages = [page.with_stem("index") if page.stem == "__init__" else page for page in pages]
    found = [path.relative_to(site / "api") for path in (site / "api").rglob("*.html")]
    assert sorted(found) == sorted(pages)


def test_the_pages_of_the_commands_have_their_options(site: Path):
    assert "--most-slots-per-job" in (site / "commands/innet.html").read_text()
    assert "--grpc-server-addr" in (site / "commands/innet-switch.html").read_text()


def test_the_lists_of_commands_have_whole_sentences(site: Path):
    html = (site / "commands/innet.html").read_text()
    assert not re.findall(r"<li>.*\.\.\.</li>", html)
    assert "Bring switches, jobs and quotas into the state that a file describes.</li>" in html


def test_a_link_out_of_the_documents_leads_to_the_module_or_the_file(site: Path):
    text = (DOCS / "architecture.md").read_text()
    html = (site / "architecture.html").read_text()
    modules = re.findall(r"\]\(\.\./(innet/\S+)\.py\)", text)
    files = re.findall(r"\]\(\.\./(innet/\S+\.[ch])\)", text)
    pages = [
        *(f"api/{module}.html" for module in modules),
        *(f"source/{file}.html" for file in files),
    ]
    assert modules
    assert files
    assert [
        page for page in pages if f'href="{page}"' not in html or not (site / page).exists()
    ] == []


def test_the_site_loads_nothing_from_elsewhere(site: Path):
    pages = sorted(site.rglob("*.html"))
    assert not [page for page in pages if LOADED_FROM_ELSEWHERE.search(page.read_text())]
