"""The API. Its modules write an id in a path as ``{monitor_id:id}``."""

from __future__ import annotations

from api.path_ids import register

register()
