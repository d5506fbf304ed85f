"""Claims, evidence of trainings and a page of each, written once; and a browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evidence_arrays import EVIDENCE, make_claims
from training_arrays import TRAINING_EVIDENCE

from mirrormargin.claims.evidence import Evidence, write_evidence
from mirrormargin.report import write_report
from mirrormargin.runs import seal

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def claims_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("claims")
    for claim in make_claims()["claims"]:
        if claim["evidence"]:
            name = claim["experiment"]
            write_evidence(folder / claim["evidence"], Evidence(name, {}, EVIDENCE[name]))
    (folder / "claims.json").write_text(json.dumps(seal(make_claims())))
    return folder


@pytest.fixture(scope="session")
def page(claims_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    return write_report([claims_folder], out, command="mirrormargin report out")


@pytest.fixture(scope="session")
def training_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trainings")
    for name, arrays in TRAINING_EVIDENCE.items():
        write_evidence(folder / name, Evidence(name, {}, arrays))
    return write_report([folder], tmp_path_factory.mktemp("training-page") / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed: make browser gets one")
    with playwright.sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"{path} does not start: {str(error).splitlines()[0]}")
        yield browser
        browser.close()
