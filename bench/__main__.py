"""``make bench``: the check engine alone, then the whole path. ``make bench ARGS="load --tls"`` runs one part."""

from __future__ import annotations

import asyncio
import sys

from bench import alerts, engine, heartbeats, limits, load, tasks


def run_load(words: list[str]) -> None:
    asyncio.run(load.run(load.parse(words)))


def main(words: list[str]) -> None:
    match words:
        case ["engine", *rest]:
            engine.main(*(int(word) for word in rest))
        case ["limits", *rest]:
            limits.main(*(int(word) for word in rest))
        case ["tasks", *rest]:
            tasks.main(*(int(word) for word in rest))
        case ["heartbeats", *rest]:
            heartbeats.main(*(int(word) for word in rest))
        case ["alerts", *rest]:
            asyncio.run(alerts.run(alerts.parse(rest)))
        case ["load", *rest]:
            run_load(rest)
        case []:
            engine.main()
            limits.main()
            tasks.main()
            heartbeats.main()
            asyncio.run(alerts.run(alerts.parse([])))
            run_load(["--interval", "10", "--seconds", "300"])
            run_load(["--interval", "20", "--seconds", "300"])
            run_load(["--interval", "20", "--seconds", "300", "--tls"])
        case _:
            raise SystemExit(
                'usage: make bench [ARGS="engine | limits | tasks | heartbeats | alerts | '
                'load [--monitors N] [--interval S] [--tls]"]'
            )


if __name__ == "__main__":
    main(sys.argv[1:])
