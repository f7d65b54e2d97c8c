"""From what a probe saw to a verdict: pure, the same answer for the same input at any time.

One function per kind of check, found by the class of its specification.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.domain import evaluate_http, evaluate_network, evaluate_steps
from shared.domain.checks import AnyCheck, DnsCheck, HttpCheck, HttpStepsCheck, PingCheck, SslCheck, TcpCheck
from shared.domain.observation import HttpObservation, TlsObservation
from shared.domain.observation_network import DnsObservation, PingObservation, TcpObservation
from shared.domain.result import CheckVerdict
from shared.domain.steps_observation import StepsObservation

Observation = (
    HttpObservation | TlsObservation | TcpObservation | DnsObservation | PingObservation | StepsObservation
)


def evaluate(spec: AnyCheck, observation: Observation, now_ms: int) -> CheckVerdict:
    """Judge an observation of ``spec`` made at ``now_ms`` (UTC). Raises ``TypeError`` for mismatched records."""
    wanted, judge_kind = _EVALUATE[type(spec)]
    if not isinstance(observation, wanted):
        raise TypeError(f"a check of kind {spec.kind} was handed {type(observation).__name__}")
    return judge_kind(spec, observation, now_ms)


def is_laborious(spec: AnyCheck, observation: Observation) -> bool:
    """Whether ``evaluate`` may take longer than others should wait: then it belongs on a thread."""
    return (
        isinstance(spec, HttpCheck)
        and isinstance(observation, HttpObservation)
        and evaluate_http.is_laborious(spec, observation)
    )


_EVALUATE: dict[type, tuple[type, Callable[[Any, Any, int], CheckVerdict]]] = {
    HttpCheck: (HttpObservation, evaluate_http.http),
    SslCheck: (TlsObservation, evaluate_network.ssl),
    TcpCheck: (TcpObservation, evaluate_network.tcp),
    DnsCheck: (DnsObservation, evaluate_network.dns),
    HttpStepsCheck: (StepsObservation, evaluate_steps.http_steps),
    PingCheck: (PingObservation, evaluate_network.ping),
}
