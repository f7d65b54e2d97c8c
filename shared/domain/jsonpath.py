"""JSON paths after RFC 9535, bounded so that a stranger's expression cannot hold up a worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError, JSONPathMatch
from jsonpath.function_extensions import Match, Search
from jsonpath.parse import Parser
from jsonpath.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment, JSONPathSegment
from jsonpath.stream import TokenStream

from shared.domain import effort
from shared.domain.comparison import compile_pattern, well_formed
from shared.domain.effort import TooMuchEffortError

_UNUSABLE = 1000
"""The size that a pattern counts as which cannot be used."""


class _Node(JSONPathMatch):
    """A value on the way, counted. It keeps no path and no children: both grow with what strangers write."""

    __slots__ = ()

    def new_child(self, obj: object, key: int | str) -> JSONPathMatch:  # noqa: ARG002 the library names the keys
        effort.step()
        return _node(obj, self.root)

    def add_child(self, *children: JSONPathMatch) -> None:
        """Nothing: nobody asks a value for its children."""


def _node(obj: object, root: Any) -> _Node:
    return _Node(filter_context={}, obj=obj, parent=None, path="", parts=(), root=root)


def _counted(nodes: Iterable[JSONPathMatch]) -> Iterator[JSONPathMatch]:
    for node in nodes:
        yield node if isinstance(node, _Node) else _node(node.obj, node.root)


class _Children(JSONPathChildSegment):
    def resolve(self, nodes: Iterable[JSONPathMatch]) -> Iterable[JSONPathMatch]:
        return super().resolve(_counted(nodes))


class _Descendants(JSONPathRecursiveDescentSegment):
    def resolve(self, nodes: Iterable[JSONPathMatch]) -> Iterable[JSONPathMatch]:
        return super().resolve(_counted(nodes))


class _Parser(Parser):
    """Its queries count, those inside of filters too."""

    def parse_query(self, stream: TokenStream) -> Iterator[JSONPathSegment]:
        for segment in super().parse_query(stream):
            kind = _Descendants if isinstance(segment, JSONPathRecursiveDescentSegment) else _Children
            yield kind(env=segment.env, token=segment.token, selectors=segment.selectors)


class _LinearPattern:
    """What the library asks of a pattern, on RE2: Python's own engine can take exponential time."""

    __slots__ = ("_pattern",)

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern

    def search(self, text: str) -> bool:
        return self._pattern.search(_weighed(self._pattern, text)) is not None

    def fullmatch(self, text: str) -> bool:
        return self._pattern.fullmatch(_weighed(self._pattern, text)) is not None


def _weighed(pattern: Any, text: str) -> str:
    effort.match(pattern.programsize, len(text))
    return well_formed(text)


class _LinearPatterns:
    def check_cache(self, pattern: str) -> Any:
        try:
            return _LinearPattern(_compiled(pattern))
        except ValueError:
            effort.match(_UNUSABLE, 0)
            return None  # RFC 9535 section 2.4.6: an unusable pattern does not match


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Any:
    """A cache of its own: the pattern may come from the document, thousands of them from one."""
    return compile_pattern.__wrapped__(pattern)


class _Match(_LinearPatterns, Match):
    pass


class _Search(_LinearPatterns, Search):
    pass


class _Environment(JSONPathEnvironment):
    parser_class = _Parser

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _Match()
        self.function_extensions["search"] = _Search()

    def is_truthy(self, obj: object) -> bool:
        effort.step()  # each value that a filter looks at
        return super().is_truthy(obj)


_ENVIRONMENT = _Environment(strict=True)


class PathFailedError(Exception):
    """The path could not be followed through this document; the text says why."""


@lru_cache(maxsize=1024)
def compile_path(path: str) -> JSONPath:
    """Raises ``ValueError`` that names the fault."""
    if not path.startswith("$"):
        raise ValueError("a JSON path starts with '$', for example $.queue.depth")
    if path.count("..") > 1:
        # Each further descent multiplies the work by the size of the document.
        raise ValueError("a JSON path may use '..' once: name the way to the value instead")
    try:
        compiled = _ENVIRONMENT.compile(path)
    except JSONPathError as error:
        raise ValueError(f"this is not a JSON path (RFC 9535): {error.args[0] if error.args else path!r}") from None
    assert isinstance(compiled, JSONPath), "unions of paths are no part of strict mode"
    return compiled


def is_simple(path: str) -> bool:
    """Whether the path leads to one value at most, step by step, and so costs nothing worth mentioning."""
    return compile_path(path).singular_query()


def find_values(path: str, document: Any) -> list[Any]:
    """All values the path leads to; raises ``PathFailedError``. The effort counts."""
    try:
        return compile_path(path).findall(document)
    except TooMuchEffortError as error:
        raise PathFailedError(str(error)) from None
    except (JSONPathError, RecursionError) as error:
        raise PathFailedError("the document is nested too deeply for this path") from error
