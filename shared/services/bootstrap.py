"""The first organisation with its owner and key, so that a new installation can be used at once."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from base64 import b64encode
from dataclasses import asdict, dataclass
from hashlib import scrypt

from shared.db.base import new_id
from shared.db.errors import DatabaseError
from shared.db.models import Membership, Organisation, User
from shared.db.repositories import organisations
from shared.db.session import Database
from shared.domain.clock import Clock, SystemClock
from shared.services.api_keys import Scope, create_key

DEFAULT_EMAIL = "owner@localhost"
# OWASP's present advice for scrypt; 128 MiB per guess.
_COST, _BLOCK, _PARALLEL = 2**17, 8, 1
_MEMORY = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Credentials:
    """Shown once: only hashes are stored. ``password`` is null when the owner has one already."""

    api_key: str
    email: str
    password: str | None


async def bootstrap(database: Database, clock: Clock, email: str = DEFAULT_EMAIL) -> Credentials | None:
    """Create the first organisation, its owner and a key with all scopes; None when there is one already."""
    password = secrets.token_urlsafe(18)
    async with database.system() as session:
        if not await organisations.is_empty(session):
            return None
        organisation = Organisation(id=new_id(), name="Default", slug="default", is_operator=True)
        owner = User(id=new_id(), email=email, name="Owner", password_hash=hash_password(password))
        session.add_all([organisation, owner])
        await session.flush()
        session.add(Membership(organisation_id=organisation.id, user_id=owner.id, role="owner"))
        _, key = await create_key(
            session, organisation.id, name="First key", scopes=list(Scope), created_by=owner.id, clock=clock
        )
    return Credentials(api_key=key, email=email, password=password)


async def renew(database: Database, clock: Clock) -> Credentials | None:
    """A further key for the first organisation, whose file of credentials was lost; None when there is none yet."""
    async with database.system() as session:
        owner = await organisations.first_owner(session)
        if owner is None:
            return None
        _, key = await create_key(
            session,
            owner.organisation_id,
            name="Key in place of a lost one",
            scopes=list(Scope),
            created_by=owner.user_id,
            clock=clock,
        )
    return Credentials(api_key=key, email=owner.email, password=None)


def hash_password(password: str) -> str:
    """Scrypt with its parameters: ``scrypt$n$r$p$salt$hash``."""
    salt = secrets.token_bytes(16)
    digest = scrypt(password.encode(), salt=salt, n=_COST, r=_BLOCK, p=_PARALLEL, maxmem=_MEMORY)
    encoded = (b64encode(part).decode() for part in (salt, digest))
    return "$".join(("scrypt", str(_COST), str(_BLOCK), str(_PARALLEL), *encoded))


def main(*, or_renew: bool = False) -> int:
    """Print the credentials as JSON; the process's exit code.

    When there is an organisation already they are ``null``, or with ``or_renew`` a further key of it.
    """
    try:
        credentials = asyncio.run(_run(os.environ.get("TOCSIN_DATABASE_URL", ""), or_renew=or_renew))
    except DatabaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(credentials and asdict(credentials)) + "\n")
    return 0


async def _run(url: str, *, or_renew: bool) -> Credentials | None:
    async with Database(url, application_name="tocsin bootstrap") as database:
        await database.verify()
        clock = SystemClock()
        made = await bootstrap(database, clock)
        return await renew(database, clock) if made is None and or_renew else made
