"""The rows of the table: every fault with what it may cost."""

from __future__ import annotations

from tests.chaos import database_faults as database
from tests.chaos import faults as processes
from tests.chaos import nats_faults as nats
from tests.chaos.faults import Fault

# What a worker that is killed holds in its hands: checks fetched and checks running.
IN_HAND = 64
# What NATS may have lost is sent again, and the ids by which it would know it again are lost as well.
FORGOTTEN = 500
# A queue that lost results leaves slots that only the audit finds, once they had all the time they may take.
AUDITED_SECONDS = 240.0

QUICK = (
    Fault("SIGKILL of the leader", processes.kill_leader, recovery=2, lateness=2),
    Fault("SIGSTOP of the leader, 15 s", processes.freeze_leader, recovery=2, lateness=2),
    Fault("SIGTERM of the leader", processes.terminate_leader, recovery=1, lateness=0.5),
    Fault("SIGKILL of a worker in a check", processes.kill_worker_in_a_check, recovery=10, reruns=IN_HAND),
    Fault("SIGKILL of NATS", nats.kill, recovery=10, reruns=IN_HAND),
    Fault("consumer, bucket, both streams deleted", nats.delete_one_after_the_other, recovery=10, missed=True,
          reruns=FORGOTTEN, settled=AUDITED_SECONDS),
    Fault("SIGKILL of PostgreSQL", database.kill, recovery=2, lateness=2),
    Fault("SIGKILL of all our processes", processes.kill_all, recovery=20, missed=True, reruns=200),
)  # fmt: skip

PROCESSES = (
    Fault("SIGKILL of the standby", processes.kill_standby, recovery=1, lateness=1),
    Fault("SIGSTOP of the standby, 15 s", processes.freeze_standby, recovery=1, lateness=1),
    Fault("SIGTERM of the standby", processes.terminate_standby, recovery=1, lateness=1),
    Fault("SIGSTOP of a worker, 15 s", processes.freeze_worker, recovery=10, reruns=IN_HAND),
    Fault("SIGTERM of a worker", processes.terminate_worker, recovery=2, lateness=2),
    Fault("SIGKILL of recorders before the ack", nats.kill_recorders_before_the_ack, recovery=15, missed=True,
          reruns=3 * IN_HAND),
    Fault("SIGKILL of the API before the relay", nats.kill_api_before_the_relay, recovery=10),
    Fault("rolling replacement, 10 times", processes.replace_everything, recovery=1, lateness=1, gap=1),
)  # fmt: skip

NATS = (
    Fault("restart of NATS", nats.restart, recovery=10, reruns=IN_HAND),
    Fault("SIGSTOP of NATS, 30 s", nats.freeze, recovery=10, missed=True, reruns=IN_HAND),
    Fault("leader cut off, 15 s", nats.cut_leader, recovery=2, lateness=2),
    Fault("leader in a black hole, 15 s", nats.black_hole_leader, recovery=2, lateness=2),
    Fault("worker cut off, 15 s", nats.cut_worker, recovery=10, reruns=IN_HAND),
    Fault("worker in a black hole, 15 s", nats.black_hole_worker, recovery=15, reruns=IN_HAND),
    Fault("bucket of schedules deleted", nats.delete_schedules, recovery=1, lateness=1),
    Fault("bucket of the lease deleted", nats.delete_lease, recovery=2, lateness=2),
    Fault("bucket of the watermark deleted", nats.delete_watermark, recovery=2, lateness=2),
    Fault("consumer of the checks deleted", nats.delete_worker_consumer, recovery=10, reruns=IN_HAND),
    Fault("consumer of the results deleted", nats.delete_recorder_consumer, recovery=1, lateness=1),
    Fault("stream of waiting checks deleted", nats.delete_checks_that_wait, recovery=10, missed=True,
          reruns=FORGOTTEN, settled=AUDITED_SECONDS),
    Fault("stream of waiting results deleted, workers killed", nats.delete_results_that_wait, recovery=10,
          missed=True, reruns=FORGOTTEN, settled=AUDITED_SECONDS),
    Fault("all data of NATS lost", nats.lose_everything, recovery=10, missed=True,
          reruns=FORGOTTEN, settled=AUDITED_SECONDS),
    Fault("power cut, NATS 10 s back", nats.cut_power, recovery=15, missed=True, reruns=FORGOTTEN,
          settled=AUDITED_SECONDS),
)  # fmt: skip

POSTGRES = (
    Fault("restart of PostgreSQL", database.restart, recovery=1, lateness=1),
    Fault("SIGSTOP of PostgreSQL, 15 s", database.freeze, recovery=1, lateness=1),
    Fault("PostgreSQL down for 60 s", database.take_down, recovery=1, lateness=1),
    Fault("all connections terminated", database.terminate_connections, recovery=1, lateness=1),
    Fault("disk of the results full, 20 s", database.fill_disk, recovery=1, lateness=1),
)  # fmt: skip

CLOCKS = (
    Fault("clock of the leader 1 h ahead, 1 h back", processes.step_clock_of_leader, recovery=2, lateness=2),
    Fault("clock of the standby 1 h ahead, 1 h back", processes.step_clock_of_standby, recovery=2, lateness=2),
    Fault("clock of a worker 1 h ahead, 1 h back", processes.step_clock_of_worker, recovery=2, lateness=2),
)
