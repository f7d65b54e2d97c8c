"""A channel as its owner describes it; what is special to its kind is in ``config``."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from shared.domain.spec import Strict


class ChannelFields(Strict):
    """What every kind of channel has."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$", examples=["ops"])]
    default: Annotated[
        bool, Field(description="Told of every incident that no policy of yours takes elsewhere.")
    ] = True
    fallback_channel_id: Annotated[
        UUID | None, Field(description="Told instead, when this one refuses a notification for good.")
    ] = None
    config: Annotated[dict[str, Any], Field(description="Depends on `kind`. Secrets read back as `********`.")]
