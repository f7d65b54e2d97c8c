"""Ids in paths. What is no id is nowhere (404), so a word beside an ``{…:id}`` is never taken for one."""

from __future__ import annotations

from uuid import UUID

from starlette.convertors import Convertor, register_url_convertor

from shared.domain.ids import ID_PATTERN, read_id


class _IdConvertor(Convertor[UUID]):
    regex = rf"{ID_PATTERN}(?!\n)"  # the ``$`` behind a route's last part lets a line break through

    def convert(self, value: str) -> UUID:
        return read_id(value)

    def to_string(self, value: UUID) -> str:
        return str(value)


def register() -> None:
    """To be called before a route is declared."""
    register_url_convertor("id", _IdConvertor())
