"""How a check proves who it is. Every field that is secret says so."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, Self

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from pydantic import Field, field_validator, model_validator

from shared.domain.headers import check_header_value
from shared.domain.spec import Secret, Strict
from shared.domain.url import parse_url

MAX_PEM = 65536


def _check_controls(text: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ValueError("control characters cannot be sent in an authentication: remove them")
    return text


class BasicAuth(Strict):
    """User name and password with every request (RFC 7617)."""

    kind: Literal["basic"] = "basic"
    username: Annotated[str, Field(max_length=256)]
    password: Annotated[str, Field(max_length=4096), Secret()]

    @field_validator("username")
    @classmethod
    def _no_colon(cls, username: str) -> str:
        if ":" in username:
            raise ValueError("a user name cannot contain ':' in basic authentication (RFC 7617)")
        return username

    @field_validator("username", "password")
    @classmethod
    def _no_controls(cls, text: str) -> str:
        return _check_controls(text)


class DigestAuth(Strict):
    """User name and password in answer to the server's challenge (RFC 7616): one request more per check."""

    kind: Literal["digest"] = "digest"
    username: Annotated[str, Field(min_length=1, max_length=256)]
    password: Annotated[str, Field(max_length=4096), Secret()]

    @field_validator("username", "password")
    @classmethod
    def _no_controls(cls, text: str) -> str:
        return _check_controls(text)


class BearerAuth(Strict):
    """A fixed token with every request (RFC 6750)."""

    kind: Literal["bearer"] = "bearer"
    token: Annotated[str, Field(min_length=1, max_length=8192), Secret()]

    @field_validator("token")
    @classmethod
    def _sendable(cls, token: str) -> str:
        if " " in token:
            raise ValueError("a bearer token has no blanks: give it without the word 'Bearer'")
        check_header_value("Authorization", token)
        return token


class OAuth2Auth(Strict):
    """Client credentials (RFC 6749 section 4.4): a token from ``token_url``, used until it expires."""

    kind: Literal["oauth2"] = "oauth2"
    token_url: Annotated[str, Field(min_length=8, max_length=2048, description="Where tokens are given out.")]
    client_id: Annotated[str, Field(min_length=1, max_length=1024)]
    client_secret: Annotated[str, Field(min_length=1, max_length=4096), Secret()]
    scope: Annotated[
        str | None, Field(min_length=1, max_length=1024, description="Asked for, blanks between several.")
    ] = None
    audience: Annotated[
        str | None, Field(min_length=1, max_length=1024, description="Sent along where a server wants it.")
    ] = None
    credentials_in: Annotated[
        Literal["header", "body"],
        Field(description="Whether id and secret go as basic authentication or in the form."),
    ] = "header"

    @field_validator("token_url")
    @classmethod
    def _dialable(cls, token_url: str) -> str:
        parse_url(token_url)
        return token_url


Auth = Annotated[BasicAuth | DigestAuth | BearerAuth | OAuth2Auth, Field(discriminator="kind")]


class ClientCertificate(Strict):
    """What the checker shows to a server that demands a certificate: PEM, the leaf first, the key not encrypted."""

    certificate: Annotated[str, Field(max_length=MAX_PEM, description="PEM, intermediates behind the leaf.")]
    key: Annotated[str, Field(max_length=MAX_PEM, description="PEM, without a passphrase."), Secret()]

    @field_validator("certificate")
    @classmethod
    def _certificates(cls, certificate: str) -> str:
        try:
            x509.load_pem_x509_certificates(certificate.encode())
        except ValueError:
            raise ValueError("this is no PEM certificate: it begins with -----BEGIN CERTIFICATE-----") from None
        return certificate

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        # A mask stands for the stored key, which is not here to be compared.
        if "-----BEGIN" in self.key or not set(self.key) <= {"*"}:
            _check_pair(self.certificate, self.key)
        return self


@lru_cache(maxsize=256)
def _check_pair(certificate: str, key: str) -> None:
    """Raises ``ValueError`` unless the key can be read and is that of the certificate."""
    try:
        private = load_pem_private_key(key.encode(), None)
    except TypeError:
        raise ValueError("the key is encrypted: give it without a passphrase, it is stored sealed") from None
    except ValueError:
        raise ValueError("the key is no PEM private key: it begins with -----BEGIN PRIVATE KEY-----") from None
    leaf = x509.load_pem_x509_certificates(certificate.encode())[0]
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
        raise ValueError("the key does not belong to the certificate: give the key it was issued for")
