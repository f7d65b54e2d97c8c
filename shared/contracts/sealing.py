"""Secrets of a check at rest: sealed where a check is stored or queued, masked where it is shown.

The stored form of a check is its JSON with every secret replaced by ``{"$sealed": "<token>"}``. What is secret
is said by the check's own fields (``Secret``) and by the names of headers (``is_sensitive_header``) and form fields
(``sounds_secret``).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import BaseModel, TypeAdapter

from shared.domain.checks import CheckSpec, FormBody, Secret, is_sensitive_header
from shared.domain.checks_http import HttpRequest
from shared.domain.checks_steps import HttpStep
from shared.domain.destinations import destinations
from shared.domain.headers import sounds_secret
from shared.domain.steps_template import is_only_a_variable

MASK: Final = "********"
MIN_KEY_LENGTH: Final = 32
_SEAL: Final = "$sealed"
# A map whose names users choose: "$sealed" is a valid name of a header, so the map itself is never a seal.
_MAPS: Final = frozenset({"headers", "fields"})
# The body of a request is any JSON its user likes, so what looks like a seal there is none.
_OPAQUE: Final = "value"
# The one list whose members hold secrets; a member is known by its name, wherever it stands.
_LIST: Final = "steps"
# A map of nothing but seals.
_SECRETS: Final = "secrets"
# Keys that sign or prove something: they are used here and never sent.
NEVER_SENT: Final = frozenset({"secret", "previous_secret", "private_key", "key"})
MOVED: Final = "where this secret is sent has changed, so the mask does not keep it: write the secret itself"
_KEY_ADVICE: Final = (
    "it was sealed with a key that is not in TOCSIN_SECRET_KEYS: append the former key to that list"
)

StoredCheck = dict[str, Any]
Path = tuple[str | int, ...]
_checks: TypeAdapter[CheckSpec] = TypeAdapter(CheckSpec)


class SealingError(Exception):
    """A secret cannot be read, or a key cannot be used; the message names TOCSIN_SECRET_KEYS."""


class MaskWithoutSecretError(ValueError):
    """A mask was written where no secret is stored that it could stand for; ``path`` says where."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__("the mask stands for a stored secret, and none is stored here: write the secret itself")


class MovedSecretError(MaskWithoutSecretError):
    """A mask was kept while the place it is sent to changed: whoever may edit could have it sent to himself."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.args = (MOVED,)


class Sealer:
    """Seals with the first key and opens with any, so that keys are rotated by putting a new one in front."""

    def __init__(self, keys: Sequence[str]) -> None:
        if not keys or any(len(key) < MIN_KEY_LENGTH for key in keys):
            raise SealingError(f"TOCSIN_SECRET_KEYS needs keys of at least {MIN_KEY_LENGTH} characters")
        self._fernet = MultiFernet([Fernet(_derive(key)) for key in keys])

    def encrypt(self, plain: bytes) -> bytes:
        return self._fernet.encrypt(plain)

    def decrypt(self, token: bytes) -> bytes:
        """Raises ``SealingError`` when none of the keys fits."""
        try:
            return self._fernet.decrypt(token)
        except InvalidToken as error:
            raise SealingError(f"a stored secret cannot be read: {_KEY_ADVICE}") from error

    def seal(self, check: BaseModel, kept: StoredCheck | None = None) -> StoredCheck:
        """The stored form of a check, or of anything else whose secrets are marked.

        ``kept`` is the stored form that this one replaces: a mask, and a secret that did not change, keep the
        seal they have there. Raises ``MaskWithoutSecretError`` for a mask that stands for nothing, or that would
        have a secret sent somewhere else.
        """
        stored = check.model_dump(mode="json")
        kept_masks: list[Path] = []
        for path in _secret_paths(check):
            *parents, name = path
            place: Any = stored
            before: Any = kept
            for parent in parents:
                before = _find(before, parent, place)
                place = place[parent]
            if place[name] == MASK and name not in NEVER_SENT:
                kept_masks.append(path)
            place[name] = self._sealed(place[name], _find(before, name, place), path)
        if kept is not None and kept_masks and destinations(stored) - destinations(kept):
            raise MovedSecretError(kept_masks[0])
        return stored

    def open(self, stored: StoredCheck) -> CheckSpec:
        """The check with its secrets in the clear; raises ``SealingError`` when none of the keys fits."""
        return _checks.validate_python(self.unsealed(stored))

    def unsealed(self, stored: StoredCheck) -> dict[str, Any]:
        """The plain form of what is no check; raises ``SealingError``."""
        return _replace_seals(stored, self._opened)

    def masked(self, stored: StoredCheck) -> StoredCheck:
        """What may be shown: the check with a mask for each secret. Needs no key."""
        return _replace_seals(stored, _mask)

    def _sealed(self, secret: str, kept: Any, path: Path) -> Any:
        if secret == MASK:
            if not _is_seal(kept):
                raise MaskWithoutSecretError(path)
            return kept
        if _is_seal(kept) and self._holds(kept, secret):
            return kept
        return {_SEAL: self.encrypt(secret.encode()).decode()}

    def _holds(self, seal: Mapping[str, str], secret: str) -> bool:
        try:
            return self._opened(seal) == secret
        except SealingError:
            return False

    def _opened(self, seal: Mapping[str, str]) -> str:
        return self.decrypt(seal[_SEAL].encode()).decode()


def _derive(key: str) -> bytes:
    derived = HKDF(SHA256(), length=32, salt=None, info=b"tocsin sealing 1").derive(key.encode())
    return base64.urlsafe_b64encode(derived)


def _secret_paths(part: BaseModel, prefix: Path = ()) -> Iterator[Path]:
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            yield from _secret_paths(value, (*prefix, name))
        elif name == _LIST:
            for number, member in enumerate(value):
                yield from _secret_paths(member, (*prefix, name, number))
        elif any(isinstance(mark, Secret) for mark in field.metadata):
            yield from _marked((*prefix, name), value)
    if isinstance(part, HttpRequest):
        yield from ((*prefix, "headers", name) for name in _secret_headers(part))
    if isinstance(part, FormBody):
        yield from ((*prefix, "fields", name) for name in part.fields if sounds_secret(name))


def _marked(path: Path, value: Any) -> Iterator[Path]:
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        yield from ((*path, name) for name in value)


def _secret_headers(part: HttpRequest) -> Iterator[str]:
    """Those that sound secret, unless all they hold is the name of a variable."""
    for name, value in part.headers.items():
        if is_sensitive_header(name) and not (isinstance(part, HttpStep) and is_only_a_variable(value)):
            yield name


def _find(kept: Any, part: str | int, place: Any) -> Any:
    """What ``kept`` has where ``place`` has its ``part``.

    Members of a map are found by name without case, as headers are, and those of a list by what they are called.
    """
    if isinstance(part, int):
        listed = kept if isinstance(kept, list) else []
        return next((member for member in listed if member["name"] == place[part]["name"]), None)
    named = kept if isinstance(kept, dict) else {}
    return next((value for name, value in named.items() if name.lower() == part.lower()), None)


def _is_seal(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {_SEAL}


def _mask(_: Mapping[str, str]) -> str:
    return MASK


def _replace_seals(stored: StoredCheck, replace: Callable[[Mapping[str, str]], str]) -> StoredCheck:
    """Other lists than that of steps are left alone.

    Assertions hold any JSON their user likes, so what looks like a seal there is none.
    """
    return {name: _replace_seal(name, value, replace) for name, value in stored.items()}


def _replace_seal(name: str, value: Any, replace: Callable[[Mapping[str, str]], str]) -> Any:
    if name == _LIST and isinstance(value, list):
        return [_replace_seals(member, replace) for member in value]
    if not isinstance(value, dict) or name == _OPAQUE:
        return value
    if _is_seal(value) and name not in _MAPS:
        return replace(value)
    if name == _SECRETS:
        return {key: replace(member) for key, member in value.items()}
    return _replace_seals(value, replace)
