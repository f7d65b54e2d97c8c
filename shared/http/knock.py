"""A request whose answer is of no interest, only that there was a good one."""

from __future__ import annotations

import httpx


async def knock(client: httpx.AsyncClient, url: str) -> str | None:
    """GET; answers what went wrong, in words without the address (those of watchers are secrets), or None."""
    try:
        answer = await client.get(url)
    except httpx.InvalidURL:
        return "the address cannot be used"
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}".replace(url, "…")
    return None if answer.is_success else f"the answer was {answer.status_code}"
