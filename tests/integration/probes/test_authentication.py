"""Proving who asks: every kind of credentials, accepted, refused and misunderstood."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote

import pytest

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck
from shared.domain.result import CheckVerdict, ResultStatus
from shared.http.guard import AddressPolicy
from shared.testing.clock import FakeClock
from tests.integration.probes.conftest import HERE, Authority, check
from tests.integration.probes.targets import Handler, answer, blocking_tls, path_of, serve

DIGEST = {"kind": "digest", "username": "u", "password": "SECRET"}


def kind(verdict: CheckVerdict) -> str | None:
    return verdict.error.kind.value if verdict.error else None


def fields_of(request: bytes) -> dict[str, str]:
    """The parameters of a Digest Authorization field."""
    found = re.search(rb"\r\nAuthorization: Digest ([^\r]*)", request)
    if not found:
        return {}
    pairs = re.findall(r'([\w*]+)=(?:"((?:[^"\\]|\\.)*)"|([^,]*))', found[1].decode())
    return {name: re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in pairs}


def guarded(
    challenge: str, hash_: Callable[[bytes], Any], *, session: bool = False, knows: str = "SECRET"
) -> Handler:
    """A server that computes the answer to its challenge by itself (RFC 7616 section 3.4)."""

    def digest(text: str) -> str:
        return str(hash_(text.encode()).hexdigest())

    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        sent = fields_of(request)
        method, target = request.decode().split(" ")[:2]
        if sent:
            secret = digest(f"u:{sent['realm']}:{knows}")
            if session:
                secret = digest(f"{secret}:{sent['nonce']}:{sent['cnonce']}")
            counted = f":{sent['nc']}:{sent['cnonce']}:auth" if "qop" in sent else ""
            expected = digest(f"{secret}:{sent['nonce']}{counted}:{digest(f'{method}:{target}')}")
            if sent["response"] == expected and sent["uri"] == target and sent["username"] == "u":
                writer.write(answer("200 OK", b"in"))
                return
        writer.write(answer("401 Unauthorized", b"who?", f"WWW-Authenticate: {challenge}"))

    return reply


NONCE = 'realm="a \\"b\\"", nonce="n,1", opaque="o=="'


@pytest.mark.parametrize(
    ("challenge", "hash_", "session"),
    [
        (f'Digest {NONCE}, qop="auth"', hashlib.md5, False),
        (f'Digest {NONCE}, qop="auth-int, auth", algorithm=MD5', hashlib.md5, False),
        (f'Digest {NONCE}, qop="auth", algorithm=SHA-256', hashlib.sha256, False),
        (f'Digest {NONCE}, qop=auth, algorithm="sha-256-sess"', hashlib.sha256, True),
        (f'Digest {NONCE}, qop="auth", algorithm=MD5-sess', hashlib.md5, True),
        (f"Digest {NONCE}", hashlib.md5, False),
        (f'Basic realm="x, y", Digest {NONCE}, algorithm=SHA-256, qop="auth"', hashlib.sha256, False),
        (f'Digest {NONCE}, algorithm=MD5, Digest {NONCE}, algorithm=SHA-256, qop="auth"', hashlib.sha256, False),
    ],
)
async def test_every_form_of_a_digest_challenge_is_answered(
    runner: CheckRunner, challenge: str, hash_: Callable[[bytes], Any], session: bool
) -> None:
    async with serve(guarded(challenge, hash_, session=session)) as target:
        for path in ("/", "/a%20b?x=1"):
            verdict = await check(runner, target.url(path), auth=DIGEST, method="POST", body="x")
            assert verdict.status is ResultStatus.UP, verdict.error
        assert len(target.requests) == 4
        assert all(request.startswith(b"POST") for request in target.requests)
        assert b"SECRET" not in b"".join(target.requests)


async def test_a_wrong_password_is_told_from_a_wrong_status(runner: CheckRunner) -> None:
    async with serve(guarded(f'Digest {NONCE}, qop="auth"', hashlib.md5, knows="other")) as target:
        verdict = await check(runner, target.url(), auth=DIGEST)
        assert kind(verdict) == "auth_failed"
        assert len(target.requests) == 2
        refused = [{"source": "status", "operator": "eq", "value": 401}]
        expected = await check(runner, target.url(), auth=DIGEST, assertions=refused)
        assert expected.status is ResultStatus.UP, expected.error


async def test_a_nonce_that_went_stale_on_the_way_is_replaced(runner: CheckRunner) -> None:
    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        wanted = "old" if path_of(request) == "/" else "new"
        if fields_of(request).get("nonce") != wanted:
            challenge = f'Digest realm="r", nonce="{wanted}", stale=true'
            writer.write(answer("401 Unauthorized", b"", f"WWW-Authenticate: {challenge}"))
        else:
            writer.write(answer("302 Found", b"", "Location: /next") if wanted == "old" else answer())

    async with serve(reply) as target:
        verdict = await check(runner, target.url(), auth=DIGEST)
        assert verdict.status is ResultStatus.UP, verdict.error
        assert [path_of(request) for request in target.requests] == ["/", "/", "/next", "/next"]


@pytest.mark.parametrize(
    "challenge",
    [
        'Basic realm="x"',
        "Negotiate",
        "Digest realm=r",
        'Digest realm="r", nonce="n", algorithm=SHA-512-256',
        'Digest realm="r", nonce="n", qop="auth-int"',
        'Digest realm="ü", nonce="n"',
        '"' * 4000,
    ],
)
async def test_a_challenge_we_cannot_answer_is_said_to_be_unsupported(runner: CheckRunner, challenge: str) -> None:
    async with serve(answer("401 Unauthorized", b"", f"WWW-Authenticate: {challenge}")) as target:
        verdict = await check(runner, target.url(), auth=DIGEST)
        assert kind(verdict) == "auth_unsupported"
        assert len(target.requests) == 1


@pytest.mark.parametrize(
    "auth",
    [{"kind": "basic", "username": "u", "password": "SECRET"}, {"kind": "bearer", "token": "SECRET"}],
)
async def test_refused_credentials_have_their_own_error(runner: CheckRunner, auth: dict[str, str]) -> None:
    async with serve(answer("401 Unauthorized", b"SECRET")) as target:
        verdict = await check(runner, target.url(), auth=auth)
        assert kind(verdict) == "auth_failed"
        assert "SECRET" not in repr(verdict)
        without = await check(runner, target.url())
        assert kind(without) == "status_code"


async def test_http_05_digest_credentials_do_not_cross_to_another_origin(runner: CheckRunner) -> None:
    async with serve(answer("401 Unauthorized", b"", f"WWW-Authenticate: Digest {NONCE}")) as other:
        moved = answer("302 Found", b"", f"Location: {other.url(host='localhost')}")
        async with serve(moved) as target:
            verdict = await check(runner, target.url(), auth=DIGEST)
        assert kind(verdict) == "status_code"
        assert len(other.requests) == 1
        assert other.header(0, "Authorization") is None


# OAuth 2


class TokenServer:
    """Gives out numbered tokens, and takes them at every other path."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.given = 0
        self.valid: set[str] = set()

    async def __call__(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        if path_of(request) == "/token":
            self.given += 1
            token = f"TOKEN{self.given}"
            self.valid.add(token)
            document = {"access_token": token, "token_type": "bearer", **self.fields}
            writer.write(answer("200 OK", json.dumps(document).encode(), "Content-Type: application/json"))
            return
        found = re.search(rb"\r\nAuthorization: Bearer (\S+)", request)
        known = found is not None and found[1].decode() in self.valid
        writer.write(answer("200 OK", b"in") if known else answer("401 Unauthorized", b"who? " + request))


def oauth2(url: str, **more: Any) -> dict[str, Any]:
    return {"kind": "oauth2", "token_url": url, "client_id": "me@x", "client_secret": "S3CRET&=", **more}


async def test_a_token_is_fetched_once_and_used_until_it_expires(authority: Authority) -> None:
    clock, tokens = FakeClock(), TokenServer(expires_in=3600)
    runner = CheckRunner(HERE, clock, ca_file=authority.ca_file)
    async with serve(tokens) as target:
        auth = oauth2(target.url("/token"))
        for _ in range(3):
            verdict = await check(runner, target.url("/x"), auth=auth)
            assert verdict.status is ResultStatus.UP, verdict.error
        assert tokens.given == 1
        clock.advance(3560)
        assert (await check(runner, target.url("/x"), auth=auth)).status is ResultStatus.UP
        assert tokens.given == 1
        clock.advance(15)
        assert (await check(runner, target.url("/x"), auth=auth)).status is ResultStatus.UP
        assert tokens.given == 2


async def test_a_token_that_was_revoked_is_replaced_within_the_attempt(runner: CheckRunner) -> None:
    tokens = TokenServer()
    async with serve(tokens) as target:
        auth = oauth2(target.url("/token"))
        await check(runner, target.url("/x"), auth=auth)
        tokens.valid.clear()
        verdict = await check(runner, target.url("/x"), auth=auth)
        assert verdict.status is ResultStatus.UP, verdict.error
        assert tokens.given == 2


async def test_a_fresh_token_that_is_refused_is_a_failed_authentication(runner: CheckRunner) -> None:
    tokens = TokenServer(access_token="REFUSED-TOKEN")
    async with serve(tokens) as target:
        verdict = await check(runner, target.url("/x"), auth=oauth2(target.url("/token")))
        assert kind(verdict) == "auth_failed"
        assert [path_of(request) for request in target.requests] == ["/token", "/x"]
        assert "REFUSED-TOKEN" not in repr(verdict)
        assert verdict.evidence
        assert "Bearer ***" in str(verdict.evidence.body)
        await check(runner, target.url("/x"), auth=oauth2(target.url("/token")))
        assert [path_of(request) for request in target.requests] == ["/token", "/x"] * 2


@pytest.mark.parametrize("place", ["header", "body"])
async def test_the_client_is_named_where_the_server_wants_it(runner: CheckRunner, place: str) -> None:
    seen: list[bytes] = []

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length
        seen.extend([head, await reader.readexactly(int(length[1]))])
        writer.write(answer("200 OK", b'{"access_token":"T0KEN","token_type":"Bearer"}'))
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
    async with serve(answer()) as target:
        auth = oauth2(url, scope="a b", audience="https://api", credentials_in=place)
        verdict = await check(runner, target.url("/x"), auth=auth)
        assert verdict.status is ResultStatus.UP, verdict.error
        assert target.header(0, "Authorization") == "Bearer T0KEN"
    server.close()
    form = parse_qs(seen[1].decode())
    assert form["grant_type"] == ["client_credentials"]
    assert form["scope"] == ["a b"]
    assert form["audience"] == ["https://api"]
    assert (b"Authorization: Basic" in seen[0].replace(b"authorization", b"Authorization")) is (place == "header")
    assert form.get("client_secret") == (None if place == "header" else ["S3CRET&="])


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (answer("400 Bad", b'{"error":"invalid_client","error_description":"no S3CRET&="}'), "invalid_client"),
        (answer("200 OK", b'{"error":"odd"}'), "odd"),
        (answer("200 OK", b"<html>"), "no JSON object"),
        (answer("200 OK", b'{"access_token":"a\\r\\nX: 1"}'), "cannot be sent"),
        (answer("200 OK", b'{"access_token":"a","token_type":"mac"}'), "mac"),
        (answer("302 Found", b"", "Location: /elsewhere"), "no JSON object"),
        (b"", "without an answer"),
    ],
)
async def test_why_there_is_no_token_is_said_without_the_secret(
    runner: CheckRunner, reply: bytes, word: str
) -> None:
    async with serve(reply) as tokens, serve(answer()) as target:
        verdict = await check(runner, target.url(), auth=oauth2(tokens.url("/token")))
        assert kind(verdict) == "auth_failed"
        assert verdict.error
        assert word in verdict.error.message
        assert "S3CRET" not in repr(verdict)
        assert target.requests == []


async def test_a_token_server_that_is_silent_is_no_silent_target(runner: CheckRunner) -> None:
    async def hang(_: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with serve(hang) as tokens, serve(answer()) as target:
        verdict = await check(runner, target.url(), auth=oauth2(tokens.url("/token")), timeout=1)
        assert kind(verdict) == "auth_failed"
        assert verdict.error
        assert "within 1 s" in verdict.error.message


async def test_a_token_server_that_fell_silent_is_no_silent_target(runner: CheckRunner) -> None:
    tokens = TokenServer()

    async def dying(request: bytes, writer: asyncio.StreamWriter) -> None:
        if tokens.given and path_of(request) == "/token":
            await asyncio.sleep(60)
        await tokens(request, writer)

    async with serve(dying) as target:
        auth = oauth2(target.url("/token"))
        assert (await check(runner, target.url("/x"), auth=auth)).status is ResultStatus.UP
        tokens.valid.clear()
        assert kind(await check(runner, target.url("/x"), auth=auth, timeout=1)) == "auth_failed"


@pytest.mark.parametrize("renewed", [False, True], ids=["first token", "token that was replaced"])
async def test_notif_03_a_token_that_a_target_passes_on_is_not_shown(runner: CheckRunner, *, renewed: bool) -> None:
    """It is a secret also behind the redirect that leaves the origin it was sent to."""
    seen: list[str] = []
    refused = False

    async def passed_on(request: bytes, writer: asyncio.StreamWriter) -> None:
        found = re.search(rb"\r\nAuthorization: Bearer (\S+)", request)
        token = found[1].decode() if found else ""
        if refused and not seen:
            writer.write(answer("401 Unauthorized"))
        else:
            place = other.url(f"/{quote(seen[0] if seen else token, safe='')}", host="localhost")
            writer.write(answer("302 Found", b"", f"Location: {place}"))
        seen.append(token)

    async def gave(_: bytes, writer: asyncio.StreamWriter) -> None:
        token = f"T0K3N+/{len(tokens.requests)}=="
        writer.write(answer("200 OK", json.dumps({"access_token": token}).encode()))

    async def echo(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("500 Broken", request))

    async with serve(gave) as tokens, serve(echo) as other, serve(passed_on) as target:
        auth = oauth2(tokens.url("/token"))
        if renewed:
            await check(runner, target.url(), auth=auth)
            refused = True
            seen.clear()
        verdict = await check(runner, target.url(), auth=auth)
    assert kind(verdict) == "status_code"
    assert seen[0].startswith("T0K3N")
    assert len(set(seen)) == (2 if renewed else 1)
    assert "T0K3N" not in repr(verdict)


async def test_the_time_of_a_token_is_not_the_time_of_the_target(runner: CheckRunner) -> None:
    async def slow(_: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2)
        writer.write(answer("200 OK", b'{"access_token":"abcdef"}'))

    async with serve(slow) as tokens, serve(answer()) as target:
        verdict = await check(runner, target.url(), auth=oauth2(tokens.url("/token")))
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.timings_ms.total < 1900


async def test_sec_01_a_private_token_server_is_not_asked() -> None:
    async with serve(answer()) as canary:
        runner = CheckRunner(AddressPolicy())
        auth = oauth2(canary.url("/token"))
        verdict = await runner.run(
            HttpCheck.model_validate({"url": "http://192.0.2.1/", "auth": auth}), timeout_seconds=2
        )
        assert kind(verdict) == "blocked_target"
        assert canary.connections == 0


# Client certificates


def demanding(authority: Authority) -> ssl.SSLContext:
    context = authority.context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.ca_file)
    return context


def own_certificate(authority: Authority) -> dict[str, Any]:
    leaf = authority.leaf("me@shop.example")
    certificate = b"".join(pem.bytes() for pem in leaf.cert_chain_pems).decode()
    return {"client_certificate": {"certificate": certificate, "key": leaf.private_key_pem.bytes().decode()}}


async def test_tls_05_a_client_certificate_opens_the_door(runner: CheckRunner, authority: Authority) -> None:
    with blocking_tls(demanding(authority), answer("200 OK", b"in")) as port:
        url = f"https://127.0.0.1:{port}/"
        with_one = await check(runner, url, tls=own_certificate(authority))
        assert with_one.status is ResultStatus.UP, with_one.error
        without = await check(runner, url)
        assert kind(without) == "tls_client_cert_required"


async def test_a_client_certificate_is_loaded_once(runner: CheckRunner, authority: Authority) -> None:
    from shared.http.tls import shared_context  # noqa: PLC0415 the cache is what is looked at

    async with serve(answer(), tls=authority.context()) as target:
        tls = own_certificate(authority)
        await check(runner, target.url(scheme="https"), tls=tls)
        before = shared_context.cache_info().misses
        await check(runner, target.url(scheme="https"), tls=tls)
        assert shared_context.cache_info().misses == before
