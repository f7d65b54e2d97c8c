"""Streams, subjects, buckets and task names: what operators see with the nats CLI, so names are kept stable."""

from __future__ import annotations

from typing import Final
from uuid import UUID

CHECKS_STREAM: Final = "CHECKS"
CHECKS_SUBJECTS: Final = "checks.>"
RESULTS_STREAM: Final = "RESULTS"
RESULTS_SUBJECTS: Final = "results.>"

SCHEDULES_BUCKET: Final = "tocsin_schedules"
LEADER_BUCKET: Final = "tocsin_leader"
LEADER_KEY: Final = "scheduler"
LOCKS_BUCKET: Final = "tocsin_locks"
PROGRESS_BUCKET: Final = "tocsin_progress"
WATERMARK_KEY: Final = "watermark"

TASKS_STREAM: Final = "TASKS"
TASKS_SUBJECTS: Final = "tasks.>"
TASKS_CONSUMER: Final = "tasks"
TASKS_BUCKET: Final = "tocsin_tasks"
DEAD_LETTERS_STREAM: Final = "DEAD_LETTERS"
DEAD_LETTERS_SUBJECTS: Final = "dead.>"
DEAD_LETTERS_CONSUMER: Final = "dead-letter-alarm"
PLATFORM: Final = "platform"

PINGS_STREAM: Final = "PINGS"
PINGS_SUBJECTS: Final = "pings.>"
PINGS_SUBJECT: Final = "pings.received"
PINGS_CONSUMER: Final = "pings"

BEATS_STREAM: Final = "BEATS"
BEAT_SCHEDULE_SUBJECT: Final = "beats.schedule"
BEAT_SUBJECT: Final = "beats.tick"

RECORDER_CONSUMER: Final = "recorder"
RUN_CHECK_TASK: Final = "run_check"
DELIVER_NOTIFICATION_TASK: Final = "deliver_notification"


def check_subject(region: str, monitor_id: UUID) -> str:
    """Where a slot waits: one subject per monitor and region, so that the stream keeps one message of each."""
    return f"checks.{region}.{monitor_id}"


def region_filter(region: str) -> str:
    return f"checks.{region}.>"


def worker_consumer(region: str) -> str:
    """The durable consumer that all workers of a region share."""
    return f"worker-{region}"


def result_subject(region: str) -> str:
    return f"results.{region}"


def run_now_subject(region: str) -> str:
    """Core NATS, request and reply: checks that a person waits for do not queue behind the schedule."""
    return f"run.{region}"


def hand_over_subject(region: str) -> str:
    """Core NATS, request and reply: slots that the stream of checks does not take go to a worker directly."""
    return f"handover.{region}"


def task_subject(organisation_id: UUID | None, task: str) -> str:
    """Where a task waits; work of the platform itself has no organisation."""
    return f"tasks.{organisation_id or PLATFORM}.{task}"


def dead_letter_subject(organisation_id: UUID | None, task: str, letter_id: UUID) -> str:
    """One subject per letter, so that one that is written again replaces itself."""
    return f"dead.{organisation_id or PLATFORM}.{task}.{letter_id}"
