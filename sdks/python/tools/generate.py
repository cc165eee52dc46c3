"""Writes `src/semel/api_types.py` from `spec/openapi.json`, or with `--check` fails where it isn't current."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
SPEC = HERE.parents[1] / "spec" / "openapi.json"
CALLED = ("/v1/",)
OUTPUT = HERE / "src" / "semel" / "api_types.py"


def names_in(value: Any) -> set[str]:
    """Every schema that is referred to."""
    if isinstance(value, dict):
        own = {value["$ref"].rsplit("/", 1)[1]} if "$ref" in value else set()
        return own.union(*(names_in(member) for member in value.values()))
    if isinstance(value, list):
        return set().union(*(names_in(item) for item in value))
    return set()


def ours(document: dict[str, Any]) -> dict[str, Any]:
    """What this package calls."""
    paths = {path: value for path, value in document["paths"].items() if path.startswith(CALLED)}
    schemas, found, todo = document["components"]["schemas"], set[str](), names_in(paths)
    while todo:
        found |= todo
        todo = set().union(*(names_in(schemas[name]) for name in todo)) - found
    kept = {name: schema for name, schema in schemas.items() if name in found}
    return {**document, "paths": paths, "components": {"schemas": kept}}


def make() -> str:
    """The file, as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        reduced, output = Path(folder, "openapi.json"), Path(folder, "api_types.py")
        reduced.write_text(json.dumps(ours(json.loads(SPEC.read_text()))))
        command = [sys.executable, "-m", "datamodel_code_generator", "--input", str(reduced), "--output", str(output)]
        command += ["--input-file-type", "openapi", "--output-model-type", "typing.TypedDict"]
        command += ["--target-python-version", "3.11", "--use-union-operator", "--use-standard-collections"]
        command += ["--disable-timestamp", "--use-schema-description", "--use-inline-field-description"]
        command += ["--enum-field-as-literal", "all", "--formatters", "ruff-format"]
        subprocess.run(command, check=True, capture_output=True, cwd=HERE)
        return output.read_text()


def main() -> int:
    """Writes, or checks."""
    wanted = make()
    if "--check" not in sys.argv:
        OUTPUT.write_text(wanted)
        return 0
    if OUTPUT.read_text() != wanted:
        print("src/semel/api_types.py is out of date: python tools/generate.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
