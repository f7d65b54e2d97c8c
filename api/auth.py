"""Who asks, and what may they do: each endpoint says it in the type of one argument."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.context import ContextDep
from api.errors import ApiError
from shared.services.api_keys import Principal, Scope, authenticate

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="ApiKey",
    description="An API key: `Authorization: Bearer tcs_…`. Keys are made at `/v1/api-keys`.",
)


async def _principal(
    context: ContextDep, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    if credentials is None:
        raise _unauthorized("send your API key in the header: Authorization: Bearer tcs_…")
    async with context.database.system() as session:
        principal = await authenticate(session, credentials.credentials, context.clock)
    if principal is None:
        raise _unauthorized("this API key is unknown, revoked or expired")
    return principal


def _unauthorized(detail: str) -> ApiError:
    return ApiError(
        HTTPStatus.UNAUTHORIZED, "unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="tocsin"'}
    )


class _Requires:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def __call__(self, principal: Annotated[Principal, Depends(_principal)]) -> Principal:
        if self._scope not in principal.scopes:
            raise ApiError(
                HTTPStatus.FORBIDDEN, "insufficient_scope", f"this needs an API key with the scope {self._scope!r}"
            )
        return principal


Reader = Annotated[Principal, Depends(_Requires(Scope.READ))]
Writer = Annotated[Principal, Depends(_Requires(Scope.WRITE))]
Admin = Annotated[Principal, Depends(_Requires(Scope.ADMIN))]
