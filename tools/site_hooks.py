"""What MkDocs does besides for the site: equations without scripts, and the pages that lie outside of docs/."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
OUTSIDE = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages of the site, and the files at the root of the repository that they are."""
_MATH = re.compile(r'<(div|span) class="arithmatex">\\([\[(])(.*?)\\[\])]</\1>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside of docs/."""
    for page, source in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        # Relative to docs/, where the page is now.
        files.append(File.generated(config, page, content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to files at the root of the repository to their pages."""
    for page, source in OUTSIDE.items():
        markdown = markdown.replace(f"](../{source}", f"]({page}")
    return markdown


def on_page_content(content: str, **_: Any) -> str:
    """Turn equations into MathML, which browsers draw by themselves."""
    return _MATH.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match.group(2) == "[" else "inline"
    made = str(convert(html.unescape(match.group(3)).replace(r"\arg", r"\mathrm{arg}\,"), display=display))
    if unknown := re.search(r"<m\w+>(\\\w+)", made):
        raise ValueError(f"{unknown.group(1)} cannot be shown; in the equation {match.group(3)}")
    # The prime is raised already, and names of functions stand apart from their arguments.
    made = re.sub(
        r"<msup>(<mi>[^<]*</mi>)<mi>&#x02032;</mi></msup>",
        r'<mrow>\1<mo lspace="0" rspace="0">&#x02032;</mo></mrow>',
        made,
    )
    made = re.sub(
        r"<mi>(log|tanh)</mi>",
        r'<mrow><mspace width="0.17em"/><mi>\1</mi><mspace width="0.1em"/></mrow>',
        made,
    )
    return made.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>").replace(
        "<mo>&#x0007E;</mo>", "<mo>&#x0223C;</mo>"
    )
