"""What a run was computed with: versions and machine."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

__all__ = ["describe_environment", "list_versions"]

PACKAGES = ("numpy", "scipy", "numba", "torch")


def list_versions() -> dict[str, str]:
    """Versions of this package, of Python, and of the packages that the numbers depend on."""
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
