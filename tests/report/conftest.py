"""A claims folder and its page, written once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from evidence_arrays import EVIDENCE, make_claims

from mirrormargin.report import write_report
from mirrormargin.runs import write_run


@pytest.fixture(scope="session")
def claims_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("claims")
    for claim in make_claims()["claims"]:
        if claim["evidence"]:
            name = claim["experiment"]
            document = {"experiment": name, "profile": "quick", "seed": 0, "settings": {}}
            write_run(folder / claim["evidence"], "evidence", document, EVIDENCE[name])
    (folder / "claims.json").write_text(json.dumps(make_claims()))
    return folder


@pytest.fixture(scope="session")
def page(claims_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    return write_report([claims_folder], out, command="mirrormargin report out")
