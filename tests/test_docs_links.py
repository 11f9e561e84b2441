"""Links between the pages of README and docs lead to files and headings that exist, and every page is in the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from helpers.pages import DOCS, FENCE, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"`[^`\n]*`")
ELSEWHERE = {"changelog.md", "contributing.md"}
"""Pages of the site that are files at the root."""


def links(page: Path) -> list[str]:
    return LINK.findall(CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8"))))


def headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{link}: no such file"
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in headings(target), f"{link}: no such heading"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

    def paths(node: object) -> list[str]:
        if isinstance(node, str):
            return [node]
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return [path for one in inner for path in paths(one)]

    listed = paths(yaml.safe_load(text)["nav"])
    assert len(listed) == len(set(listed))
    assert set(listed) == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | ELSEWHERE


def test_the_speeds_in_the_readme_are_those_of_the_benchmarks() -> None:
    measured = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .*? \| ([\d,]+) \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    compared = 0
    for ours, others in rows:
        assert f" {ours} " in measured
        for theirs, ratio in re.findall(r"([\d,]+) \((.*?) x\)", others):
            assert f" {theirs} " in measured
            assert abs(number(ours) / number(theirs) - float(ratio)) <= 0.0501
            compared += 1
    assert compared >= 9


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_site_asks_no_other_host() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert config["theme"]["font"] is False
    assert "offline" in config["plugins"]
    scripts = [*config["extra"]["polyfills"], *config["extra_css"], *config.get("extra_javascript", [])]
    assert scripts
    for script in scripts:
        assert (DOCS / script).is_file()
