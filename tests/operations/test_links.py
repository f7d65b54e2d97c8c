"""Links of every page lead somewhere: to a file of this repository, and to a heading where one is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
_OURS = (
    "api",
    "cli",
    "deploy",
    "docs",
    "helm",
    "migrations",
    "monitoring_scheduler",
    "monitoring_worker",
    "shared",
)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)? *$", re.MULTILINE)
_MENTION = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.md(?:#[\w-]+)?")


def pages() -> list[Path]:
    ours = [*ROOT.glob("*.md"), *(page for folder in _OURS for page in (ROOT / folder).rglob("*.md"))]
    return sorted(ours)


def anchors(page: str) -> set[str]:
    """The names that headings get: small letters, no punctuation, hyphens for blanks; a second one is counted."""
    found: set[str] = set()
    for heading in _HEADING.findall(re.sub(r"```.*?```", "", page, flags=re.DOTALL)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        repeated = sum(each == name or re.fullmatch(rf"{re.escape(name)}-\d+", each) is not None for each in found)
        found.add(f"{name}-{repeated}" if repeated else name)
    return found


def broken(page: Path, text: str) -> Iterator[str]:
    for link in _LINK.findall(_CODE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = unquote(link).partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield f"{link}: there is no such heading"


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()])
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page, page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("[a](security.md)", [], id="a file"),
        pytest.param("[a](security.md#targets-ssrf)", [], id="a heading"),
        pytest.param("[a](nothing.md)", ["nothing.md: there is no such file"], id="no file"),
        pytest.param("[a](security.md#no)", ["security.md#no: there is no such heading"], id="no heading"),
        pytest.param(
            "# One\n## One\n[a](#one-1) [b](#two)", ["#two: there is no such heading"], id="within a page"
        ),
        pytest.param("`[a](nothing.md)` [b](https://example.org)", [], id="what is no link of ours"),
    ],
)
def test_what_is_broken_is_found(text: str, found: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    (tmp_path / "security.md").symlink_to(ROOT / "docs" / "security.md")
    assert list(broken(page, text)) == found


def test_pages_that_the_program_and_other_pages_name_exist() -> None:
    files = [
        path for folder in _OURS for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".yaml", ".md"}
    ]
    mentions = {mention for path in files for mention in _MENTION.findall(path.read_text(encoding="utf-8"))}
    assert "docs/configuration.md" in mentions
    missing = [mention for mention in mentions if not (ROOT / mention.partition("#")[0]).exists()]
    assert missing == []
