"""Name servers that a check names itself, asked instead of the system's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from shared.domain.errors import ErrorKind
from shared.domain.route import split_server
from shared.http.dns_query import DnsAnswer, DnsQuestion, Server
from shared.http.errors import BlockedError, TargetError
from shared.http.guard import AddressPolicy
from shared.http.resolver import Family, literal

PATIENCE = 0.1
"""Seconds that the question for the other family has, once one has given addresses."""

_BROKEN = frozenset({"SERVFAIL", "REFUSED", "NOTIMP", "FORMERR"})
"""Answers that say something about the server and nothing about the name."""


@dataclass(frozen=True, slots=True)
class NameServers:
    """A resolver that asks these servers in turn. Search lists and hosts files of this machine do not count."""

    servers: tuple[Server, ...]
    policy: AddressPolicy
    monotonic: Callable[[], float]

    async def resolve(self, host: str, family: Family) -> tuple[str, ...]:
        """All addresses, IPv6 first; raises ``TargetError``, or ``BlockedError`` for a forbidden server."""
        if literal(host, family):
            return (host,)
        for address, _ in self.servers:
            if refusal := self.policy.refusal(address):
                raise BlockedError(f"the name server {address} is blocked: {refusal}")
        families: tuple[Literal["4", "6"], ...] = ("6", "4") if family == "auto" else (family,)
        return _addresses(host, await _both([self._ask(host, each) for each in families]))

    async def _ask(self, host: str, family: Literal["4", "6"]) -> DnsAnswer:
        question = DnsQuestion(f"{host.removesuffix('.')}.", "A" if family == "4" else "AAAA")
        servers = self.servers
        while True:
            answer = await question.ask(servers, self.monotonic)
            servers = servers[1:]
            if answer.rcode not in _BROKEN or not servers:
                return answer


async def _both(questions: list[Coroutine[Any, Any, DnsAnswer]]) -> list[DnsAnswer | BaseException]:
    """The answers in the order of the questions. One that dawdles does not hold up addresses that are there."""
    tasks = [asyncio.create_task(question) for question in questions]
    try:
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        found = any(task.exception() is None and task.result().records for task in done)
        if waiting:
            await asyncio.wait(waiting, timeout=PATIENCE if found else None)
        return [task.exception() or task.result() for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _addresses(host: str, answers: list[DnsAnswer | BaseException]) -> tuple[str, ...]:
    """One family may fail as long as the other gives addresses."""
    found = [record for each in answers if isinstance(each, DnsAnswer) for record in each.records]
    if found:
        return tuple(found)
    for each in answers:
        if isinstance(each, BaseException):
            raise each
    rcodes = [each.rcode for each in answers if isinstance(each, DnsAnswer)]
    if broken := [rcode for rcode in rcodes if rcode not in {"NOERROR", "NXDOMAIN"}]:
        raise TargetError(ErrorKind.DNS_FAILURE, f"{host} could not be resolved: the name server says {broken[0]}")
    if "NXDOMAIN" in rcodes:
        raise TargetError(ErrorKind.DNS_NXDOMAIN, f"{host} does not exist")
    raise TargetError(ErrorKind.DNS_NO_DATA, f"{host} has no address of this family")


def name_servers(texts: list[str], policy: AddressPolicy, monotonic: Callable[[], float]) -> NameServers:
    """From how a check writes them."""
    return NameServers(tuple(map(split_server, texts)), policy, monotonic)
