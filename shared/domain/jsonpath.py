"""JSON paths after RFC 9535, bounded so that a stranger's expression cannot hold up a worker."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError
from jsonpath.function_extensions import Match, Search

from shared.domain.comparison import compile_pattern


class _LinearPatterns:
    """Patterns inside filters run on RE2 too: Python's own engine can take exponential time."""

    def check_cache(self, pattern: str) -> Any:
        try:
            return compile_pattern(pattern)
        except ValueError:
            return None  # RFC 9535 section 2.4.6: an unusable pattern does not match


class _Match(_LinearPatterns, Match):
    pass


class _Search(_LinearPatterns, Search):
    pass


class _Environment(JSONPathEnvironment):
    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _Match()
        self.function_extensions["search"] = _Search()


_ENVIRONMENT = _Environment(strict=True)


class PathFailedError(Exception):
    """The path could not be followed through this document."""


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


def find_values(path: str, document: Any) -> list[Any]:
    """All values the path leads to; raises ``PathFailedError`` when the document is too deep to be searched."""
    try:
        return compile_path(path).findall(document)
    except (JSONPathError, RecursionError) as error:
        raise PathFailedError("the document is nested too deeply for this path") from error
