"""The wheel: with the engine where its native module lies beside the package, else of Python alone.

`crates/python` is that module, compiled beforehand. It uses the stable ABI, so one wheel of a platform is for all
versions of Python. `SEMEL_WHEEL_PLATFORM` names the platform where it isn't that of this machine, such as
`manylinux_2_28_x86_64` for a module that was linked against that glibc.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAMES = ("_native.abi3.so", "_native.pyd")


class NativeModule(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the module, and the platform's tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the wheel is written. An editable installation finds the module in the folder."""
        found = [name for name in NAMES if (Path(self.root) / "src" / "semel" / name).is_file()]
        if not found or version == "editable":
            return
        default = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        platform = os.environ.get("SEMEL_WHEEL_PLATFORM", default)
        build_data["pure_python"] = False
        build_data["tag"] = f"cp310-abi3-{platform}"
        build_data["artifacts"] += [f"src/semel/{name}" for name in found]
