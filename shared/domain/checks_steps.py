"""The specification of kind ``http_steps``: requests in order, which hand values on to later ones."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from shared.domain.assertions import BODY_SOURCES
from shared.domain.checks_http import HttpRequest
from shared.domain.comparison import compile_pattern, well_formed
from shared.domain.headers import check_header_name, check_request_headers, sounds_secret
from shared.domain.jsonpath import compile_path
from shared.domain.spec import Secret, Strict
from shared.domain.steps_template import VARIABLE_NAME, Value, misspelt_in, names_in, sample_urls, sampled, texts_in
from shared.domain.url import parse_url

MAX_STEPS = 20
MAX_STEP_ASSERTIONS = 100
MAX_EXTRACTIONS = 20
MAX_VALUE = 8192
MAX_CHECK = 262_144
_FILLED = ("url", "headers", "body", "auth")
"""The fields in which variables are replaced."""


def _printable(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("a name of a step has printable characters, and no blank at either end")
    return name


StepName = Annotated[str, Field(min_length=1, max_length=60), AfterValidator(_printable)]
VariableName = Annotated[str, StringConstraints(pattern=f"^{VARIABLE_NAME}$")]
Text = Annotated[str, Field(max_length=MAX_VALUE)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Extraction(Strict):
    """A value that is taken out of an answer and can be used in later steps as ``{{name}}``."""

    name: Annotated[VariableName, Field(description="Letters, digits and `_`.")]
    source: Annotated[Literal["json", "header", "regex", "cookie"], Field(description="Where it is taken from.")]
    path: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1000,
            description="A JSON path, the name of the header or cookie, or an RE2 pattern for the body.",
        ),
    ]
    secret: Annotated[
        bool | None,
        Field(description="Taken out of results; by default a cookie, and what sounds secret by its name."),
    ] = None

    @model_validator(mode="after")
    def _usable(self) -> Self:
        match self.source:
            case "json":
                compile_path(self.path)
            case "regex":
                compile_pattern(self.path)
            case "header":
                check_header_name(self.path)
        return self

    @property
    def is_secret(self) -> bool:
        """Whether results have to keep silent about the value."""
        if self.secret is not None:
            return self.secret
        return self.source == "cookie" or sounds_secret(self.name) or sounds_secret(self.path)


class StepRequest(HttpRequest):
    """A step as it is sent, the values of its variables in place."""

    name: Annotated[StepName, Field(description="Results and errors name the step by it.")]
    extract: Annotated[
        list[Extraction], Field(max_length=MAX_EXTRACTIONS, description="Values for later steps.")
    ] = []
    on_error: Annotated[
        Literal["stop", "continue"], Field(description="Whether the steps behind it are run when it fails.")
    ] = "stop"

    @cached_property
    def wants_body(self) -> bool:
        """Whether any assertion or extraction looks at the body."""
        looked_at = {each.source for each in self.assertions} | {each.source for each in self.extract}
        return bool(looked_at & (BODY_SOURCES | {"regex"}))

    @model_validator(mode="after")
    def _has_a_body(self) -> Self:
        if self.method == "HEAD" and self.wants_body:
            raise ValueError("the answer to HEAD has no body to look at: use GET")
        return self


class HttpStep(StepRequest):
    """One request: the options of kind ``http`` but ``kind`` and ``invert``, and these."""

    url: Annotated[
        str, Field(min_length=1, max_length=2048, description="An address; a variable may stand for all of it.")
    ]

    @field_validator("url")
    @classmethod
    def _dialable(cls, url: str) -> str:
        urlsplit(url)  # brackets have to hold an address, so no variable either
        faults = []
        for sample in sample_urls(url):  # one of them has to be good
            try:
                parse_url(sample)
                return url
            except ValueError as error:
                faults.append(error)
        raise faults[0]

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        check_request_headers({name: sampled(value) for name, value in headers.items()})
        return headers

    @model_validator(mode="after")
    def _well_written(self) -> Self:
        for text in texts_in([getattr(self, name) for name in _FILLED]):
            if (found := misspelt_in(text)) is not None:
                raise ValueError(f"{{{{{found}}}}} is no variable: write {{{{name}}}} with letters, digits and '_'")
        if self.tls.report_changes:
            raise ValueError("tls.report_changes: no certificate of a step is kept: watch it with kind 'ssl'")
        return self

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names of the variables it uses."""
        return frozenset(names_in([getattr(self, name) for name in _FILLED]))


class HttpStepsCheck(Strict):
    """Requests in order; each may use what was extracted before it. Cookies are kept from one to the next."""

    kind: Literal["http_steps"] = "http_steps"
    steps: Annotated[list[HttpStep], Field(min_length=1, max_length=MAX_STEPS, description="In order; see below.")]
    variables: Annotated[
        dict[VariableName, Text | bool | int | Number],
        Field(max_length=50, description="Values that are known beforehand."),
    ] = {}
    secrets: Annotated[
        dict[VariableName, Annotated[str, Field(min_length=1, max_length=MAX_VALUE)]],
        Field(max_length=50, description="The same, stored sealed and never shown."),
        Secret(),
    ] = {}
    cleanup: Annotated[
        HttpStep | None, Field(description="A step that is always run last, whatever happened before.")
    ] = None

    @property
    def every_step(self) -> tuple[HttpStep, ...]:
        """All steps, the cleanup last."""
        return (*self.steps, self.cleanup) if self.cleanup else tuple(self.steps)

    @property
    def given(self) -> dict[str, Value]:
        """The variables that have a value before the first step."""
        texts = {**self.variables, **self.secrets}
        return {name: well_formed(value) if isinstance(value, str) else value for name, value in texts.items()}

    @property
    def target(self) -> str:
        """What it is about, for people: the first address as it is written."""
        return self.steps[0].url

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [step.name for step in self.every_step]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two steps are called {twice!r}: results could not be told apart")
        if clash := self.variables.keys() & self.secrets.keys():
            raise ValueError(f"{min(clash)!r} is named in variables and in secrets: keep one of them")
        if sum(len(step.assertions) for step in self.every_step) > MAX_STEP_ASSERTIONS:
            raise ValueError(f"there are more than {MAX_STEP_ASSERTIONS} assertions in all steps together")
        self._check_variables()
        if len(self.model_dump_json()) > MAX_CHECK:
            raise ValueError(f"the check is longer than {MAX_CHECK // 1024} KiB as JSON")
        return self

    def _check_variables(self) -> None:
        known = set(self.given)
        for step in self.every_step:
            if unknown := sorted(step.variables - known):
                raise ValueError(
                    f"step {step.name!r}: {{{{{unknown[0]}}}}} is neither given nor extracted by a step before it"
                )
            for each in step.extract:
                if each.name in self.given:
                    raise ValueError(f"step {step.name!r}: {each.name!r} is given already: extract another name")
                known.add(each.name)
