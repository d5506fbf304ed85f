"""On what a run was made: versions and machine."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

__all__ = ["describe_environment", "list_versions"]

PACKAGES = ("numpy", "scipy", "numba", "torch")


def list_versions() -> dict[str, str]:
    """Of this package, Python, and the packages that numbers come from."""
    python = {"python": platform.python_version()}
    return (
        {"mirrormargin": _find("mirrormargin")} | python | {name: _find(name) for name in PACKAGES}
    )


def describe_environment() -> dict[str, Any]:
    """Versions, system, processor and cores."""
    return {
        "versions": list_versions(),
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        },
    }


def _find(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"
