"""How do other people's libraries use it? One thin file for each library."""

from __future__ import annotations

from mirrormargin.errors import MissingLibraryError

__all__ = ["miss"]


def miss(library: str, extra: str) -> MissingLibraryError:
    """The error for a library that cannot be imported."""
    return MissingLibraryError(
        f"{library} is not installed, or too old: pip install 'mirrormargin[{extra}]'", name=library
    )
