"""Building HTML of parts, in which every text is escaped unless it was built here."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

from rl_training.errors import printable


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Content: TypeAlias = "str | int | float | Iterable[Content] | None"
_EMPTY = frozenset({"br", "circle", "hr", "line", "link", "meta", "polygon", "wbr"})


def escaped(content: Content) -> Html:
    """Return content as HTML: texts escaped and without control characters, parts of a list one after another."""
    if content is None:
        return Html("")
    if isinstance(content, Html):
        return content
    if isinstance(content, (str, int, float)):
        lines = str(content).split("\n")
        return Html(html.escape("\n".join(map(printable, lines)), quote=True))
    return Html("".join(map(escaped, content)))


def tag(name: str, /, *content: Content, **attributes: str | int | float | bool | None) -> Html:
    """Return an element. ``class_`` is ``class``, ``data_x`` is ``data-x``; an attribute that is None is left out."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        plain = key.rstrip("_").replace("_", "-")
        words.append(plain if value is True else f'{plain}="{escaped(value)}"')
    if name in _EMPTY:
        return Html(f"<{' '.join(words)}/>")
    return Html(f"<{' '.join(words)}>{escaped(content)}</{name}>")
