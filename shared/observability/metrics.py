"""Every metric of the product, in one place: Prometheus names, base units, bounded labels."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from shared.domain.errors import MissedReason

_LATENESS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
_CHECK_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

slots_due = Counter("tocsin_slots_due_total", "Slots that became due on the leading scheduler.")
slots_dispatched = Counter("tocsin_slots_dispatched_total", "Slots handed to the queue or to a worker.")
slots_handed_over = Counter(
    "tocsin_slots_handed_over_total", "Slots that a worker took directly because the queue did not answer."
)
slots_missed = Counter("tocsin_slots_missed_total", "Slots recorded as missed.", ["reason"])
for _reason in MissedReason:  # a counter that first appears with a value has no increase to alert on
    slots_missed.labels(_reason.value)
dispatch_lateness = Histogram(
    "tocsin_dispatch_lateness_seconds",
    "From the moment a slot is due to its acknowledgement by the queue.",
    buckets=_LATENESS_BUCKETS,
)
scheduler_is_leader = Gauge("tocsin_scheduler_is_leader", "1 while this scheduler holds the lease.")
scheduler_schedules = Gauge("tocsin_scheduler_schedules", "Schedules this scheduler knows.")
leader_changes = Counter("tocsin_leader_changes_total", "Times this scheduler took or lost the lead.")

checks = Counter("tocsin_checks_total", "Checks run, by kind and verdict.", ["kind", "status"])
check_duration = Histogram(
    "tocsin_check_duration_seconds",
    "Duration of a check with its retries.",
    ["kind"],
    buckets=_CHECK_BUCKETS,
)
checks_in_flight = Gauge("tocsin_checks_in_flight", "Checks running on this worker.")
consumer_reinitialisations = Counter(
    "tocsin_consumer_reinitialisations_total", "Times a consumer was set up anew after a fault."
)
queue_pending = Gauge("tocsin_queue_pending", "Messages waiting in a stream.", ["stream"])
queue_oldest = Gauge("tocsin_queue_oldest_seconds", "Age of the oldest message in a stream.", ["stream"])
incidents_open = Gauge(
    "tocsin_incidents_open", "Incidents that are not resolved; every worker with a database counts all of them."
)
monitors_blind = Gauge("tocsin_monitors_blind", "Active monitors without a verdict for three intervals.")
watchdog_alarm = Gauge("tocsin_watchdog_alarm", "1 while this part of the work is not being done.", ["part"])
results_stored = Counter("tocsin_results_stored_total", "Results written to PostgreSQL.")
result_store_lag = Gauge("tocsin_result_store_lag_seconds", "Age of the oldest result in the last stored batch.")

task_retries = Counter("tocsin_task_retries_total", "Attempts that failed and are tried again.", ["task"])
task_failures = Counter("tocsin_task_failures_total", "Tasks that failed for good.", ["task"])
task_duration = Histogram(
    "tocsin_task_duration_seconds", "Duration of one attempt.", ["task"], buckets=_CHECK_BUCKETS
)
task_seconds = Counter(
    "tocsin_task_seconds_total",
    "Seconds of attempts that succeeded (spent_on=work), of others and of the waits after them (retries).",
    ["task", "spent_on"],
)
dead_letters = Gauge("tocsin_dead_letters", "Dead letters that wait for somebody to look at them.", ["task"])

_JOB_BUCKETS = (0.01, 0.05, 0.25, 1, 5, 15, 60, 300, 900)
job_runs = Counter("tocsin_job_runs_total", "Runs of the platform's jobs, by how they ended.", ["job", "status"])
job_duration = Histogram(
    "tocsin_job_duration_seconds", "Duration of a run of a job.", ["job"], buckets=_JOB_BUCKETS
)
job_processed = Gauge("tocsin_job_processed", "Items that the last run of a job here worked on.", ["job"])
job_last_success = Gauge(
    "tocsin_job_last_success_timestamp_seconds", "When a job last succeeded, in any process.", ["job"]
)
job_silent = Gauge("tocsin_job_silent", "1 while a job has not succeeded for longer than it may.", ["job"])
pings_received = Counter("tocsin_pings_received_total", "Pings of heartbeats that were stored or handed over.")
pings_refused = Counter("tocsin_pings_refused_total", "Pings that were answered with 503.")

notifications = Counter(
    "tocsin_notifications_total", "Notifications by kind of channel and what came of them.", ["channel", "outcome"]
)
