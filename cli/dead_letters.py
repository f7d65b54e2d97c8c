"""``tocsin dead-letters``: what failed for good, for those who operate the installation. Talks to NATS itself."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

import typer

from cli.errors import UsageError
from shared.domain.ids import read_id

if TYPE_CHECKING:  # loaded when a command runs, so that other commands start without it
    from shared.tasks.dead_letters import DeadLetterDesk
    from shared.tasks.letters import DeadLetter, View

CONNECT_SECONDS = 5.0
_DAY_MS = 86_400_000
_HINT = "tocsin dead-letters list shows those that wait"

Answer = TypeVar("Answer")
DataDir = Annotated[Path, typer.Option(help="Of tocsin up, when TOCSIN_NATS_URL is not set.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT_DIR = Path(".tocsin")

app = typer.Typer(name="dead-letters", help="Work that failed for good.", no_args_is_help=True)


def _id(text: str) -> UUID:
    try:
        return read_id(text)
    except ValueError as error:
        raise UsageError(f"{text}: {error}: {_HINT}") from None


LetterId = Annotated[UUID, typer.Argument(parser=_id, metavar="ID", help="As list shows it.")]
LetterIds = Annotated[list[UUID], typer.Argument(parser=_id, metavar="ID", help="As list shows them.")]


@app.command("list")
def list_letters(  # noqa: PLR0917 typer builds the command line from the parameters, by name
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    organisation: Annotated[str | None, typer.Option(help="Only of this one: its id, or platform.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 50,
    before: Annotated[
        UUID | None,
        typer.Option(parser=_id, metavar="ID", help="Only older ones than this: the last id of a page."),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DIR,
) -> None:
    """List dead letters of all organisations, newest first."""
    view = _view(organisation)
    letters = _ask(data_dir, lambda desk: desk.page(view, task=task, before=before, limit=limit))
    if as_json:
        _print_json([_document(letter) for letter in letters])
        return
    for letter in letters:
        typer.echo(_line(letter))
    if not letters:
        typer.echo(_nothing(data_dir, task))


@app.command()
def show(letter_id: LetterId, as_json: AsJson = False, data_dir: DataDir = DEFAULT_DIR) -> None:
    """Show a dead letter with all its attempts."""
    from shared.tasks.letters import EVERYTHING  # noqa: PLC0415 see TYPE_CHECKING above

    letter = _ask(data_dir, lambda desk: desk.show(EVERYTHING, letter_id))
    if as_json:
        _print_json(_document(letter))
    else:
        for line in _lines(letter):
            typer.echo(line)


@app.command()
def replay(letter_ids: LetterIds, data_dir: DataDir = DEFAULT_DIR) -> None:
    """Do the work again.

    It is queued as if it were new; what fails again is back under the same id.
    """
    from shared.tasks.letters import EVERYTHING  # noqa: PLC0415

    async def replay_one(desk: DeadLetterDesk, letter_id: UUID) -> None:
        await desk.replay(EVERYTHING, letter_id)
        typer.echo(f"{letter_id} is queued again")

    _each(data_dir, letter_ids, replay_one)


@app.command()
def delete(letter_ids: LetterIds, data_dir: DataDir = DEFAULT_DIR) -> None:
    """Delete dead letters: what they stand for will not be done."""
    from shared.tasks.letters import EVERYTHING  # noqa: PLC0415

    async def delete_one(desk: DeadLetterDesk, letter_id: UUID) -> None:
        await desk.delete(EVERYTHING, letter_id)
        typer.echo(f"{letter_id} is deleted")

    _each(data_dir, letter_ids, delete_one)


@app.command()
def purge(
    older_than_days: Annotated[float, typer.Option(min=0, help="Delete those that failed longer ago.")],
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DIR,
) -> None:
    """Delete old dead letters of all organisations."""
    from shared.domain.clock import SystemClock  # noqa: PLC0415
    from shared.tasks.letters import EVERYTHING  # noqa: PLC0415

    before_ms = SystemClock().now_ms() - round(older_than_days * _DAY_MS)
    deleted = _ask(data_dir, lambda desk: desk.purge(EVERYTHING, before_ms))
    if as_json:
        _print_json({"deleted": deleted})
    else:
        typer.echo(f"{deleted} dead letter{'' if deleted == 1 else 's'} deleted")


def nats_urls(data_dir: Path) -> list[str]:
    """Where NATS is: as the environment says, or that of ``tocsin up`` in a directory; raises ``UsageError``."""
    from cli.data_directory import DataDirectory, demand_running  # noqa: PLC0415
    from shared.embedded.nats import Nats  # noqa: PLC0415
    from shared.settings import CommonSettings, ConfigurationError, load  # noqa: PLC0415

    if os.environ.get("TOCSIN_NATS_URL"):
        try:
            return load(CommonSettings).nats_url
        except ConfigurationError as error:
            raise UsageError(str(error)) from None
    if not (data_dir / "nats").is_dir() or not (data_dir / "secrets").exists():
        raise UsageError(f"set TOCSIN_NATS_URL, or name the --data-dir of tocsin up: there is none at {data_dir}")
    demand_running(data_dir)
    directory = DataDirectory(data_dir.absolute())
    password = directory.secret_values()["nats_password"]
    return [Nats(directory.nats, directory.port("nats", lambda _: True), 0, password).url]


def _each(
    data_dir: Path, letter_ids: Sequence[UUID], work: Callable[[DeadLetterDesk, UUID], Awaitable[None]]
) -> None:
    """Work on every letter, also behind one for which it can't be done; those are named at the end."""
    from shared.tasks.errors import TaskError  # noqa: PLC0415

    async def work_on_all(desk: DeadLetterDesk) -> None:
        refused = []
        for letter_id in letter_ids:
            try:
                await work(desk, letter_id)
            except TaskError as error:
                refused.append(str(error))
        if refused:
            raise UsageError(f"{'; '.join(refused)}: {_HINT}")

    _ask(data_dir, work_on_all)


def _ask(data_dir: Path, question: Callable[[DeadLetterDesk], Awaitable[Answer]]) -> Answer:
    """Put one question to the desk; whatever goes wrong is one line for the person at the terminal."""
    from nats.errors import Error as NatsError  # noqa: PLC0415

    from shared.messaging.connect import describe  # noqa: PLC0415
    from shared.messaging.errors import MessagingError  # noqa: PLC0415
    from shared.observability.logging import configure_logging  # noqa: PLC0415
    from shared.tasks.errors import TaskError  # noqa: PLC0415

    configure_logging("console", "CRITICAL")  # what goes wrong is said by the exception, once
    try:
        return asyncio.run(_asked(nats_urls(data_dir), question))
    except TaskError as error:
        raise UsageError(f"{error}: {_HINT}") from None
    except MessagingError as error:
        raise UsageError(str(error)) from None
    except (NatsError, OSError) as error:
        raise UsageError(f"NATS did not answer ({describe(error)}): try again") from None


async def _asked(urls: Sequence[str], question: Callable[[DeadLetterDesk], Awaitable[Answer]]) -> Answer:
    from shared.messaging.connect import connect  # noqa: PLC0415
    from shared.messaging.publisher import Publisher  # noqa: PLC0415
    from shared.tasks.dead_letters import DeadLetterDesk  # noqa: PLC0415

    connection = await connect(urls, name="tocsin-cli", buffer_writes=False, deadline=CONNECT_SECONDS)
    try:
        async with Publisher(connection) as publisher:
            return await question(DeadLetterDesk(connection, publisher))
    finally:
        await connection.close()


def _nothing(data_dir: Path, task: str | None) -> str:
    """A task without letters may be a slip of the pen, so those that have some are named."""
    tasks = _ask(data_dir, lambda desk: desk.count()) if task else {}
    if not tasks or task in tasks:
        return "There are no dead letters."
    return f"There are none of {task}. There are dead letters of {', '.join(sorted(tasks))}."


def _view(organisation: str | None) -> View:
    from shared.tasks.letters import EVERYTHING, View  # noqa: PLC0415

    if organisation is None:
        return EVERYTHING
    try:
        return View((None if organisation == "platform" else read_id(organisation),))
    except ValueError:
        raise UsageError(f"--organisation {organisation}: give the id of one, or platform") from None


def _document(letter: DeadLetter) -> Any:
    import msgspec  # noqa: PLC0415

    from shared.tasks.letters import letter_document  # noqa: PLC0415

    return msgspec.json.decode(msgspec.json.encode(letter_document(letter)))


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _line(letter: DeadLetter) -> str:
    from cli.check_lines import visible  # noqa: PLC0415

    failed = letter.failed_at.isoformat(timespec="seconds").replace("+00:00", "Z")
    owner = letter.organisation_id or "platform"
    tries = f"{len(letter.attempts)} attempt{'' if len(letter.attempts) == 1 else 's'}"
    error = f"{letter.error.kind}: {visible(letter.error.message)}"
    return f"{letter.id}  {failed}  {letter.task}  {owner}  {tries}  {error}"


def _lines(letter: DeadLetter) -> list[str]:
    from cli.check_lines import visible  # noqa: PLC0415

    document = _document(letter)
    facts = {
        "letter": document["id"],
        "task": letter.task,
        "task id": document["task_id"] or "none",
        "owner": document["organisation_id"] or "platform",
        "failed at": document["failed_at"],
        "worker": letter.worker,
        "error": f"{letter.error.kind}: {letter.error.message}",
        "arguments": json.dumps(document["arguments"], ensure_ascii=False),
    }
    lines = [f"{name:<10}  {visible(str(value))}" for name, value in facts.items()]
    attempts = [
        f"{number:>3}  {a['at']}  {a['seconds']:.3f} s  {a['worker']}  {a['error_kind']}: {visible(a['message'])}"
        for number, a in enumerate(document["attempts"], 1)
    ]
    return [*lines, "attempts", *attempts]
