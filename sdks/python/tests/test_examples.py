"""The examples run, and the guides show exactly these files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.servers import Payments, python
from support.servers import sidecar as sidecar_of

HERE = Path(__file__).parents[1]
PAGES = [HERE.parents[1] / "docs" / name for name in ("python.md", "python-frameworks.md", "agents.md", "webhooks.md")]
BLOCK = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)


def said(file: str, *arguments: str, **env: str) -> list[str]:
    process = python(str(HERE / "examples" / file), *arguments, env=env, stdout=-1)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.decode().splitlines()


def test_the_first_call(sidecar: str, payments: Payments) -> None:
    once = said("first_call.py", PAYMENTS_URL=sidecar)
    again = said("first_call.py", PAYMENTS_URL=sidecar)
    assert (once[0].split()[0], once[0].split()[2], again[0].split()[2]) == ("201", "new", "replayed")
    assert once[0].split()[1] == again[0].split()[1] == payments.receipts["ord-1"]


def test_the_outbox(sidecar: str, payments: Payments, tmp_path: Path) -> None:
    (line,) = said("outbox_calls.py", "o-1", "o-2", PAYMENTS_URL=sidecar, OUTBOX=str(tmp_path))
    assert line == str({name: payments.receipts[name] for name in ("o-1", "o-2")})
    assert list(tmp_path.iterdir()) == []


def test_the_worker(api: str) -> None:
    assert said("worker.py", SIDECAR_URL=api) == ["{'charge': 'ch_1'}"] * 3 + ["1 charge(s)"]


def test_the_long_export(api: str) -> None:
    assert said("long_export.py", SIDECAR_URL=api) == ["0", "1", "2", "3 pages"]
    assert said("long_export.py", SIDECAR_URL=api) == ["3 pages"]


def test_the_examples_run_where_the_server_only_observes(payments: Payments) -> None:
    with sidecar_of(payments.url, "--set", "defaults.mode=observe") as url:
        api = f"{url}/_semel"
        assert said("worker.py", SIDECAR_URL=api)[-1] == "3 charge(s)"
        for _ in range(2):
            assert said("long_export.py", SIDECAR_URL=api) == ["0", "1", "2", "3 pages"]


def test_the_function_without_a_sidecar(tmp_path: Path) -> None:
    store = f"sqlite://{tmp_path}/keys.db"
    assert said("alone.py", "o-1", "o-1", STORE_URL=store) == ["charging o-1"] + ["{'charged': 500}"] * 2
    assert said("alone.py", "o-1", STORE_URL=store) == ["{'charged': 500}"]


AGENTS = ("langgraph_agent.py", "openai_agent.py", "pydantic_ai_agent.py", "crewai_tool.py")


@pytest.mark.parametrize("file", AGENTS)
def test_an_agent_that_words_its_call_anew(file: str) -> None:
    # A stand-in for CrewAI alone: its packages are hundreds.
    code = f"import crew, runpy; crew.install(); runpy.run_path({str(HERE / 'examples' / file)!r}, run_name='__main__')"
    path = os.pathsep.join(str(HERE / folder) for folder in ("src", "tests/support"))
    env = {**os.environ, "PYTHONPATH": path, "STORE_URL": "memory://"}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
    counted, told = ran.stdout.splitlines()
    assert counted == "without: 2 emails, with: 1"
    assert told.startswith("Nothing was done: this call of send_email is like an earlier one")


def test_the_pages_show_the_files() -> None:
    text = "".join(page.read_text() for page in PAGES)
    blocks = dict(BLOCK.findall(text))
    assert text.count("```python") == len(blocks), "every block names its file"
    for file, shown in blocks.items():
        assert shown == (HERE / "examples" / file).read_text(), file
    left_out = {file.name for file in (HERE / "examples").glob("*.py")} - set(blocks)
    assert not left_out


@pytest.mark.parametrize("name", ["keys", "canonical", "_fingerprint", "testing"])
def test_what_docstrings_say(name: str) -> None:
    import doctest  # noqa: PLC0415
    import importlib  # noqa: PLC0415

    result = doctest.testmod(importlib.import_module(f"semel.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
