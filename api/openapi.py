"""The OpenAPI document: what FastAPI derives from the endpoints, completed by what it cannot know.

Errors are the same everywhere, so which ones an operation has is told by what it takes, and nobody lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from api.errors import MEDIA_TYPE, FieldProblem, ProblemDocument
from api.idempotency import REPLAYED
from shared.channels.registry import KINDS

COMPONENTS = "#/components/schemas/{model}"
OPERATIONS = frozenset({"get", "put", "post", "patch", "delete", "head", "options", "trace"})
_FASTAPI_ERRORS = ("HTTPValidationError", "ValidationError")
_TEXTS = ("title", "description", "default")
_WITH_CHANNEL = ("NewChannel", "ChannelPatch")
_RETRY_LATER = ("429", "503")

_UNAUTHORIZED = {
    401: "No API key, or one that is unknown, revoked or expired.",
    403: "The key lacks the scope.",
    503: "A server behind the API does not answer: try again.",
}
_NOT_FOUND = {404: "Nothing with this id in your organisation."}
_INVALID = {422: "A field is wrong; `errors` names it."}
_BODY = {413: "The body is longer than one mebibyte.", 415: "The body is not announced as JSON."}
_CONFLICT = {409: "What you ask for is over or going on, or this `Idempotency-Key` belongs to another request."}
_CHANGED = {412: "It changed since you read it: read it again."}
_OTHER = "Any other error: of the same form."


def problem(description: str) -> dict[str, Any]:
    """An error's entry in the document."""
    return {"description": description, "content": {MEDIA_TYPE: {"schema": _reference(ProblemDocument.__name__)}}}


def ok_headers(**descriptions: str) -> dict[str, Any]:
    """The headers of an answer; ``_`` in a name stands for ``-``."""
    return {
        name.replace("_", "-"): {"description": text, "schema": {"type": "string"}}
        for name, text in descriptions.items()
    }


LOCATION: dict[int | str, dict[str, Any]] = {201: {"headers": ok_headers(Location="Where to read it.")}}
ETAG = ok_headers(ETag="The revision, for `If-Match` of a change.")


def patch_body(model: type[BaseModel], title: str, example: dict[str, Any]) -> dict[str, Any]:
    """The ``openapi_extra`` of a PATCH: each field of the model, none required, null for one with a default."""
    schema = model.model_json_schema(ref_template=COMPONENTS)
    required = schema.get("required", ())
    properties = {name: part if name in required else _or_null(part) for name, part in schema["properties"].items()}
    found = {"type": "object", "title": title, "additionalProperties": False, "properties": properties}
    content = {"application/json": {"schema": {**found, "examples": [example]}}}
    return {"requestBody": {"content": content, "required": True}}


def complete(app: FastAPI) -> None:
    """Have ``/openapi.json`` answer with the completed document."""
    derive = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(derive())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI tells to


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    schemas = document["components"]["schemas"]
    for name in _FASTAPI_ERRORS:
        schemas.pop(name, None)
    for model in (ProblemDocument, FieldProblem):
        schemas[model.__name__] = _without_definitions(model)
    for schema in schemas.values():
        _require_kind(schema)
    _describe_channels(document)
    for operation in operations(document):
        _complete_answers(operation)
    return document


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        yield from (operation for method, operation in methods.items() if method in OPERATIONS)


def _complete_answers(operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    found = {str(status): problem(text) for status, text in _errors(operation).items()}
    if "HTTPValidationError" in str(answers.get("422")):
        del answers["422"]
    answers.update({**found, **answers})
    if operation.get("security"):
        answers["default"] = problem(_OTHER)
    for status in _RETRY_LATER:
        if status in answers:
            answers[status]["headers"] = ok_headers(Retry_After="Seconds to wait.")
    if "Idempotency-Key" in _parameters(operation):
        ok = answers[min(answers)]
        ok["headers"] = {**ok.get("headers", {}), **ok_headers(**{REPLAYED: "`true` for a repeated answer."})}


def _errors(operation: dict[str, Any]) -> dict[int, str]:
    """Those that follow from what the operation takes."""
    if not operation.get("security"):
        return {}
    names = _parameters(operation)
    found = dict(_UNAUTHORIZED)
    if "path" in names.values():
        found |= _NOT_FOUND
    if "requestBody" in operation or not all(_is_id_in_path(each) for each in operation.get("parameters", ())):
        found |= _INVALID
    if "requestBody" in operation:
        found |= _BODY
    if "Idempotency-Key" in names:
        found |= _CONFLICT
    if "If-Match" in names:
        found |= _CHANGED
    return dict(sorted(found.items()))


def _is_id_in_path(parameter: dict[str, Any]) -> bool:
    """What is no id there is an address that does not exist."""
    return (parameter["in"], parameter["schema"].get("format")) == ("path", "uuid")


def _parameters(operation: dict[str, Any]) -> dict[str, str]:
    """Where each parameter is, by name."""
    return {each["name"]: each["in"] for each in operation.get("parameters", ())}


def _require_kind(schema: dict[str, Any]) -> None:
    """A default makes ``kind`` optional in Python; in a document it is what tells the kinds apart."""
    if "const" in schema.get("properties", {}).get("kind", {}):
        schema["required"] = sorted({*schema.get("required", ()), "kind"})


def _describe_channels(document: dict[str, Any]) -> None:
    """Say what ``config`` may hold: one schema for each kind of channel."""
    schemas = document["components"]["schemas"]
    for kind in KINDS.values():
        schema = kind.config.model_json_schema(ref_template=COMPONENTS)
        schemas.update(schema.pop("$defs", {}))
        schemas[kind.config.__name__] = schema
    one_of = {"anyOf": [_reference(kind.config.__name__) for kind in KINDS.values()]}
    for schema in (*schemas.values(), *_bodies(document)):
        if schema.get("title") in _WITH_CHANNEL:
            schema["properties"]["config"] |= one_of


def _bodies(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for operation in operations(document):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            yield content.get("schema", {})


def _without_definitions(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=COMPONENTS)
    schema.pop("$defs", None)
    return schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    if {"type": "null"} in schema.get("anyOf", ()):
        return schema
    texts: dict[str, Any] = {key: schema[key] for key in _TEXTS if key in schema}
    inner = {key: part for key, part in schema.items() if key not in texts}
    return {**texts, "anyOf": [inner, {"type": "null"}]}


def _reference(model: str) -> dict[str, str]:
    return {"$ref": COMPONENTS.format(model=model)}
