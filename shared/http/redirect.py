"""The request that follows a redirect."""

from __future__ import annotations

from shared.domain.errors import ErrorKind
from shared.domain.url import Url
from shared.http.errors import TargetError
from shared.http.request import Request

_CONTENT_HEADERS = frozenset({"content-type", "content-encoding", "content-language", "content-location"})


def redirected(request: Request, status_code: int, location: str) -> Request:
    """What to ask for next (RFC 9110 section 15.4); raises ``TargetError`` (redirect_invalid).

    Everything the user typed stays behind when the origin changes, whatever it is called: a key in a header of
    their own is as secret as one in Authorization. It does not come back either, should a later hop return.
    """
    try:
        url = request.url.join(location)
    except ValueError as error:
        raise TargetError(ErrorKind.REDIRECT_INVALID, f"the redirect cannot be followed: {error}") from None
    method, body, headers = request.method, request.body, request.headers
    if _becomes_get(method, status_code):
        method, body = "GET", None
        headers = tuple(pair for pair in headers if pair[0].lower() not in _CONTENT_HEADERS)
    if url.origin == request.url.origin:
        return Request(method, url, headers, body)
    if body is not None:
        raise TargetError(ErrorKind.REDIRECT_INVALID, _body_stays(url))
    return Request(method, url)


def _becomes_get(method: str, status_code: int) -> bool:
    if status_code == 303:
        return method != "HEAD"
    return status_code in {301, 302} and method == "POST"


def _body_stays(url: Url) -> str:
    return f"the request body is not sent on to another origin: check {url.redacted()} directly"
