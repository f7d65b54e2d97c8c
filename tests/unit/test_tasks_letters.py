from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.clock import to_datetime
from shared.tasks.dead_letters import message_of
from shared.tasks.journal import Journal
from shared.tasks.letter_box import organisation_of
from shared.tasks.letters import (
    RAW_LIMIT,
    Attempt,
    DeadLetter,
    LetterError,
    View,
    decode_letter,
    encode_letter,
    letter_document,
    letter_id,
    raw_arguments,
)

ORGANISATION = UUID("019a7f00-0000-7000-8000-000000000002")
FAILED = Attempt(1_796_040_000_000, "timeout", "too slow", "worker:1", 1.5)


def letter(payload: bytes) -> DeadLetter:
    arguments, form, truncated = raw_arguments(payload)
    return DeadLetter(
        id=letter_id(1_796_040_000_000, "x"),
        task="unreadable",
        task_id=None,
        organisation_id=None,
        arguments=arguments,
        error=LetterError("undecodable", "no"),
        attempts=(FAILED,),
        failed_at=to_datetime(FAILED.ended_ms),
        worker="worker:1",
        subject="checks.eu.x",
        form=form,
        truncated=truncated,
    )


@given(moment_ms=st.integers(0, 2**62), identity=st.text())
def test_an_id_is_a_uuid7_that_follows_from_what_failed(moment_ms: int, identity: str) -> None:
    made = letter_id(moment_ms, identity)
    assert made == letter_id(moment_ms, identity)
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert made.int >> 80 == moment_ms % 2**48


def test_ids_sort_by_time_and_differ_by_message() -> None:
    assert letter_id(1_000, "z") < letter_id(1_001, "a")
    assert len({letter_id(1_000, str(number)) for number in range(1000)}) == 1000


@given(st.binary(max_size=200))
@pytest.mark.parametrize("sample", [b'{"a": 1}', b"\xff", b"", b"[" * 5000, b'"\\ud800"'])
def test_any_message_comes_back_from_its_letter_byte_by_byte(sample: bytes, payload: bytes) -> None:
    for content in (sample, payload):
        stored = decode_letter(encode_letter(letter(content)))
        assert message_of(stored) == content
        assert not stored.truncated


def test_of_a_huge_message_the_beginning_is_kept_and_that_is_said() -> None:
    stored = letter(b"\x00" * (RAW_LIMIT + 1))
    assert stored.truncated
    assert len(message_of(stored)) == RAW_LIMIT
    assert len(encode_letter(stored)) < 1_000_000, "a server takes a mebibyte"


def test_the_public_form_has_what_the_contract_names() -> None:
    shown = msgspec.json.decode(msgspec.json.encode(letter_document(letter(b'{"a":1}'))))
    assert {"id", "task", "arguments", "error", "attempts", "failed_at"} <= shown.keys()
    assert shown["arguments"] == {"a": 1}
    assert shown["failed_at"] == "2026-11-30T12:00:01.500000Z"
    assert {"at": "2026-11-30T12:00:00Z", "error_kind": "timeout", "message": "too slow"}.items() <= shown[
        "attempts"
    ][0].items()


@pytest.mark.parametrize(
    ("subject", "owner"),
    [
        (f"tasks.{ORGANISATION}.mail", ORGANISATION),
        ("tasks.platform.mail", None),
        ("tasks.nonsense.mail", None),
        (f"checks.{ORGANISATION}.mail", None),
        ("tasks", None),
    ],
)
def test_the_owner_of_a_task_stands_in_its_subject(subject: str, owner: UUID | None) -> None:
    assert organisation_of(subject) == owner


def test_a_view_names_its_owners() -> None:
    assert View().owners() == ("*",)
    assert View((ORGANISATION, None)).owners() == (str(ORGANISATION), "platform")


def test_a_finished_attempt_ends_the_count_of_lost_runs() -> None:
    journal = Journal().begun().begun().held(5_000)
    assert (journal.starts, journal.held_back, journal.wait_seconds(3_000)) == (2, True, 2.0)
    assert journal.begun().held_back is False
    failed = journal.failed(FAILED, 9_000)
    assert (failed.starts, failed.held_back, failed.not_before_ms, failed.attempts) == (0, False, 9_000, (FAILED,))
    over = failed.ended(FAILED)
    assert (over.is_over, over.attempts, over.wait_seconds(0)) == (True, (FAILED, FAILED), 0)
