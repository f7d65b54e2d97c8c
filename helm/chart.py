"""``python -m helm.chart``: the chart as one YAML stream, rendered with its production values.

``--values FILE`` takes other values, ``--readme`` writes the table of values into the chart's README.md, and
``--check`` only says whether that is up to date. Needs the development dependencies, not a helm binary.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart, HelmError

CHART = Path(__file__).parent / "tocsin"
PRODUCTION = CHART / "ci" / "production-values.yaml"
README = CHART / "README.md"
RELEASE = "tocsin"
NAMESPACE = "monitoring"

_KEY = re.compile(r"^( *)([A-Za-z]\w*):")
_PLACE = re.compile(r"(<!-- values -->\n).*?(<!-- end -->)", re.DOTALL)


def render(values: dict[str, Any], *, release: str = RELEASE) -> dict[str, str]:
    """Manifests by file of the chart, the empty ones left out; raises ``HelmError``."""
    with Chart.load(CHART) as chart:
        rendered = chart.render(values, name=release, namespace=NAMESPACE, is_install=True, is_upgrade=False)
    manifests = {name: text for name, text in sorted(rendered.items()) if name.endswith(".yaml")}
    return {name: text for name, text in manifests.items() if any(yaml.safe_load_all(text))}


def stream(values: dict[str, Any]) -> str:
    """All manifests, each behind the name of its file."""
    return "".join(f"---\n# Source: {name}\n{text.strip()}\n" for name, text in render(values).items())


def table(text: str) -> str:
    """The documented values of a values.yaml as a Markdown table."""
    values = yaml.safe_load(text)
    rows = (f"| `{path}` | `{_default(values, path)}` | {meaning} |\n" for path, meaning in documented(text))
    return "| Value | Default | Meaning |\n|---|---|---|\n" + "".join(rows)


def documented(text: str) -> Iterator[tuple[str, str]]:
    """Paths of values with the comment in front of each, in the order of the file."""
    path: list[tuple[int, str]] = []
    meaning = ""
    for line in text.splitlines():
        comment = line.strip().removeprefix("#").strip()
        if line.strip().startswith("# -- "):
            meaning = comment.removeprefix("-- ")
        elif line.strip().startswith("#") and meaning:
            meaning += f" {comment}"
        elif found := _KEY.match(line):
            indent = len(found[1])
            path = [*(part for part in path if part[0] < indent), (indent, found[2])]
            if meaning:
                yield ".".join(name for _, name in path), meaning
            meaning = ""


def with_table(page: str, values: str) -> str:
    return _PLACE.sub(lambda found: f"{found[1]}{table(values)}{found[2]}", page)


def _default(values: Any, path: str) -> str:
    for part in path.split("."):
        values = values[part]
    return yaml.safe_dump(values, default_flow_style=True, width=10_000).strip().removesuffix("\n...")


def main(words: list[str]) -> int:
    """Print the manifests, or keep the README; the exit code of the process."""
    parser = argparse.ArgumentParser(prog="python -m helm.chart")
    parser.add_argument("--values", type=Path, default=PRODUCTION)
    parser.add_argument("--readme", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(words)
    if options.readme or options.check:
        return _keep_readme(write=options.readme)
    try:
        sys.stdout.write(stream(yaml.safe_load(options.values.read_text(encoding="utf-8"))))
    except HelmError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _keep_readme(*, write: bool) -> int:
    page = README.read_text(encoding="utf-8")
    current = with_table(page, (CHART / "values.yaml").read_text(encoding="utf-8"))
    if write:
        README.write_text(current, encoding="utf-8")
    return 0 if write or page == current else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
