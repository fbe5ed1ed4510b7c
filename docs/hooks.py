"""Site pages made from the sources, and links that leave docs/.

On a code host, a page links to ``../innet/host/timer.py`` or ``../SECURITY.md``. On the site the same
link leads to the module's API reference, to the page, or to a page that shows the file.
"""

import logging
import posixpath
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import CombinedEvent, event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BESIDE_DOCS = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SCRIPTS = {name: target.partition(":")[0] for name, target in PROJECT["scripts"].items()}
"""The module of each command, by the command's name."""

LANGUAGES = {
    ".c": "c",
    ".h": "c",
    ".p4": "c",
    ".proto": "protobuf",
    ".py": "python",
    ".service": "ini",
    ".toml": "toml",
    ".yaml": "yaml",
}
LINK = re.compile(r"(?<=\]\()[^)\s#:]+(?=[)#])")
BOLD = re.compile(r'<span style="font-weight: bold">(.*?)</span>', re.DOTALL)
FIRST_SENTENCES = re.compile(r"^#+ `([^`\n]+)`\n\n(.+?\.)\s", re.MULTILINE | re.DOTALL)
CUT_SHORT = re.compile(r"^\* `([\w-]+)`: .*\.\.\.$", re.MULTILINE)
SECTIONS = re.compile(r"^(?=#+ `)", re.MULTILINE)
LISTING = re.compile(r'<details class="mkdocstrings-source">.*?</details>', re.DOTALL)
NO_LISTING = "<!-- listing -->"

# It names every module that it documents.
logging.getLogger("mkdocs.plugins.api-autonav").setLevel(logging.WARNING)


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Add the pages beside docs/, the commands, and the files that pages link to."""
    for name, uri in BESIDE_DOCS.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    for script, module in SCRIPTS.items():
        files.append(File.generated(config, f"commands/{script}.md", content=usage(script, module)))
    linked = {path for file in files.documentation_pages() for path in links(file).values()}
    for path in sorted(linked):
        if (uri := site_uri(path)).startswith("source/"):
            files.append(File.generated(config, uri, content=source(path)))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links to the site's pages instead of the repository's files."""
    del config, files
    folder = posixpath.dirname(page.file.src_uri)
    targets = {
        link: posixpath.relpath(site_uri(path), folder) for link, path in links(page.file).items()
    }
    return LINK.sub(lambda link: targets.get(link[0], link[0]), markdown)


@event_priority(100)
def without_listings(_: Any, *, page: Page, **__: Any) -> None:
    """Take the listings of the sources out of a page. They are most of the API reference.

    The search does not find words of a source, and need not read the listings. This takes a fifth of the
    site's build.
    """
    page.meta[NO_LISTING] = LISTING.findall(page.content or "")
    page.content = LISTING.sub(NO_LISTING, page.content or "")


@event_priority(-100)
def with_listings(_: Any, *, page: Page, **__: Any) -> None:
    """Put the listings back, when the search has read the page."""
    listings = iter(page.meta.pop(NO_LISTING))
    page.content = re.sub(NO_LISTING, lambda _: next(listings), page.content or "")


on_page_context = CombinedEvent(without_listings, with_listings)


def links(file: File) -> dict[str, Path]:
    """Return the files and folders of the repository that a page links to, by the link's text."""
    if not file.abs_src_path:
        return {}  # the page is generated
    folder = Path(file.abs_src_path).parent
    found = {link: (folder / link).resolve() for link in LINK.findall(file.content_string)}
    return {link: path for link, path in found.items() if path.exists()}


def site_uri(path: Path) -> str:
    """Return the site's page for a file or folder of the repository."""
    name = path.relative_to(ROOT).as_posix()
    module = name.removesuffix(".py")
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    if name in BESIDE_DOCS:
        return BESIDE_DOCS[name]
    for script, its_module in SCRIPTS.items():
        if module == its_module.replace(".", "/"):
            return f"commands/{script}.md"
    if (path / "__init__.py").exists():
        return f"api/{module}/index.md"
    if path.suffix == ".py" and name.startswith("innet/"):
        return f"api/{module}.md"
    return f"source/{name}.md"


def usage(script: str, module: str) -> str:
    """Return the reference of a typer command, in Markdown."""
    made = subprocess.run(
        [sys.executable, "-m", "typer", module, "utils", "docs", "--name", script],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return with_whole_summaries(BOLD.sub(r"<code>\1</code>", made.stdout))


def with_whole_summaries(page: str) -> str:
    """Return a reference whose lists of commands have whole sentences. Typer cuts them short."""
    summaries = dict(FIRST_SENTENCES.findall(page))

    def whole(section: str) -> str:
        heading = re.match(r"#+ `(.+)`", section)
        command = heading[1] if heading else ""
        return CUT_SHORT.sub(
            lambda cut: f"* `{cut[1]}`: {summaries[f'{command} {cut[1]}']}", section
        )

    return "".join(whole(section) for section in SECTIONS.split(page))


def source(path: Path) -> str:
    """Return a page that shows a file, or the files of a folder."""
    shown = [path] if path.is_file() else sorted(path.rglob("*"))
    listings = (
        f"## {file.name}\n\n~~~~~~ {LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}\n~~~~~~\n"
        for file in shown
        if file == path or file.suffix in LANGUAGES
    )
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {path.relative_to(ROOT)}\n\n" + "\n".join(
        listings
    )
