"""Show me: figures, tables and one self-contained page, from folders that others wrote.

    mirrormargin.report.write_report([Path("out")], Path("report.html"), Path("figures"))

Nothing is trained here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mirrormargin.errors import ReportError, RunError

__all__ = ["write_report"]

SUFFIXES = (".html", ".htm", ".md")


def write_report(
    sources: Sequence[str | Path],
    out: str | Path,
    figures_dir: str | Path | None = None,
    title: str | None = None,
    command: str | None = None,
) -> Path:
    """Write a page about claims folders and run folders, and its figures as files if asked.

    Args:
        sources: Folders written by reproduce, train, lab or sweep; folders of such folders too.
        out: The page, ending in .html or .htm; or in .md, for the verdicts as Markdown tables.
        figures_dir: Folder for each figure as SVG, PDF, PNG, CSV and JSON; None for no files.
        title: Heading of the page.
        command: What made it, shown at the end.

    Returns:
        The path of the page.

    Raises:
        ReportError: If ``out`` ends otherwise, there is nothing to report on, a folder is damaged,
            a file cannot be written, or plotly or matplotlib are missing.
    """
    from mirrormargin.report.contents import arrange_contents, read_sources
    from mirrormargin.report.markdown import write_markdown
    from mirrormargin.report.page import write_page
    from mirrormargin.report.static import write_static
    from mirrormargin.report.tables import write_tables

    out = Path(out)
    folder = None if figures_dir is None else Path(figures_dir)
    _check_files(out, folder)
    contents = arrange_contents(read_sources([Path(source) for source in sources]))
    if not contents.claims and not contents.figures:
        raise ReportError("the folders hold neither claims nor figures: there is nothing to show")
    try:
        write = write_markdown if out.suffix.lower() == ".md" else write_page
        write(contents, out, title, command)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for figure in contents.figures:
                write_static(figure, folder / figure.name)
                write_tables(figure, folder / figure.name)
    except RunError as error:
        raise ReportError(str(error)) from error
    except OSError as error:
        raise ReportError(f"{folder} cannot be made: {error.strerror}") from error
    return out


def _check_files(out: Path, folder: Path | None) -> None:
    """Before the work, not after it."""
    from mirrormargin.runs import check_writable

    try:
        check_writable(out)
    except RunError as error:
        raise ReportError(str(error)) from error
    if out.suffix.lower() not in SUFFIXES:
        raise ReportError(
            f"{out} ends in {out.suffix or 'nothing'}: give a name that ends in"
            f" {', '.join(SUFFIXES[:-1])} for a page or {SUFFIXES[-1]} for the verdicts as tables"
        )
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ReportError(f"{folder} is a file: give a folder for the figures")
