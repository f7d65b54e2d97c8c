"""``make bench``: the check engine alone, then the whole path. ``make bench ARGS="load --tls"`` runs one part."""

from __future__ import annotations

import asyncio
import sys

from bench import engine, limits, load


def run_load(words: list[str]) -> None:
    asyncio.run(load.run(load.parse(words)))


def main(words: list[str]) -> None:
    match words:
        case ["engine", *rest]:
            engine.main(*(int(word) for word in rest))
        case ["limits", *rest]:
            limits.main(*(int(word) for word in rest))
        case ["load", *rest]:
            run_load(rest)
        case []:
            engine.main()
            limits.main()
            run_load(["--interval", "10", "--seconds", "300"])
            run_load(["--interval", "20", "--seconds", "300"])
            run_load(["--interval", "20", "--seconds", "300", "--tls"])
        case _:
            raise SystemExit(
                'usage: make bench [ARGS="engine | limits | load [--monitors N] [--interval S] [--tls]"]'
            )


if __name__ == "__main__":
    main(sys.argv[1:])
