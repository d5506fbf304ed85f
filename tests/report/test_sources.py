"""What can be reported on, and what is said about the rest."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from evidence_arrays import EVIDENCE, make_claims

from mirrormargin.claims.evidence import Evidence, write_evidence
from mirrormargin.errors import MirrorMarginError, ReportError
from mirrormargin.report import write_report
from mirrormargin.report.contents import arrange_contents, read_sources
from mirrormargin.runs import seal, write_run


def _write_evidence(folder: Path, name: str = "directions") -> None:
    write_evidence(folder, Evidence(name, {}, EVIDENCE[name]))


def test_a_claims_folder_brings_its_evidence(claims_folder: Path) -> None:
    (claims,) = read_sources([claims_folder]).claims
    assert set(claims.evidence) == {"directions", "trajectories", "rates", "weights", "steps"}
    assert len(claims.claims) == 6


@pytest.mark.parametrize("where", ["../other", "evidence/../../other", "link", "{absolute}", "/"])
def test_evidence_outside_of_the_folder_is_never_read(
    claims_folder: Path, tmp_path: Path, where: str
) -> None:
    _write_evidence(tmp_path / "other")
    claims = shutil.copytree(claims_folder, tmp_path / "claims")
    (claims / "link").symlink_to(tmp_path / "other")
    document = json.loads((claims / "claims.json").read_text())
    document["claims"][0]["evidence"] = where.format(absolute=tmp_path / "other")
    (claims / "claims.json").write_text(json.dumps(seal(document)))
    with pytest.raises(ReportError, match=r"claims.json is damaged.*outside of the folder"):
        read_sources([claims])


def test_a_folder_of_folders_is_all_of_them(tmp_path: Path) -> None:
    _write_evidence(tmp_path / "b")
    _write_evidence(tmp_path / "a", "rates")
    (tmp_path / "notes").mkdir()
    assert list(read_sources([tmp_path]).evidence) == ["a", "b"]


def test_runs_are_found_four_levels_down_and_named_by_their_place(tmp_path: Path) -> None:
    for place in ("flow/seed-1-p-2", "a/b/c/d", "a/b/c/d/too-deep", ".hidden/x", "a/.old"):
        _write_evidence(tmp_path / place)
    assert list(read_sources([tmp_path]).evidence) == ["a/b/c/d", "flow/seed-1-p-2"]


def test_a_run_below_another_run_is_shown_too(tmp_path: Path) -> None:
    _write_evidence(tmp_path / "a")
    _write_evidence(tmp_path / "a" / "b")
    assert list(read_sources([tmp_path / "a"]).evidence) == ["a", "b"]


def test_evidence_below_claims_is_no_run_and_a_folder_may_hold_claims_and_a_run(
    claims_folder: Path, tmp_path: Path
) -> None:
    both = shutil.copytree(claims_folder, tmp_path / "deep" / "both")
    assert read_sources([tmp_path]).evidence == {}
    _write_evidence(both)
    _write_evidence(both / "more")
    found = read_sources([tmp_path])
    assert [claims.name for claims in found.claims] == ["deep/both"]
    assert list(found.evidence) == ["deep/both", "deep/both/more"]


def test_evidence_that_belongs_to_no_claims_is_a_run(tmp_path: Path) -> None:
    _write_evidence(tmp_path / "evidence" / "rates", "rates")
    assert list(read_sources([tmp_path]).evidence) == ["evidence/rates"]


def test_a_file_names_its_folder_alone(tmp_path: Path) -> None:
    _write_evidence(tmp_path / "a")
    _write_evidence(tmp_path / "a" / "b")
    assert list(read_sources([tmp_path / "a" / "run.json"]).evidence) == ["a"]


def test_folders_of_the_same_name_are_told_apart_by_their_parents(tmp_path: Path) -> None:
    for place in ("x/run", "y/run", "z"):
        _write_evidence(tmp_path / place)
    found = read_sources([tmp_path / "x" / "run", tmp_path / "y" / "run", tmp_path / "z"])
    assert list(found.evidence) == ["x/run", "y/run", "z"]


def test_a_folder_given_twice_is_read_once(tmp_path: Path) -> None:
    _write_evidence(tmp_path / "a")
    assert len(read_sources([tmp_path, tmp_path / "a"]).evidence) == 1


def test_the_same_claims_from_two_folders_stand_side_by_side(
    claims_folder: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(claims_folder, tmp_path / "other")
    (other / "claims.json").write_text(json.dumps(seal({**make_claims(), "seed": 7})))
    text = write_report([claims_folder, other], tmp_path / "r.html").read_text()
    profile = make_claims()["profile"]
    for folder, seed in ((claims_folder, make_claims()["seed"]), (other, 7)):
        heading = f"{folder.name}, profile {profile}, seed {seed}"
        assert f"<h3>{heading}: paper A</h3>" in text
        assert f"{heading}: Training at p against the max-margin directions" in text
        assert f"<dd>{heading}</dd>" in text
    for anchor in ("fig-directions", "fig-directions-2", "claim-A-thm-rate", "claim-A-thm-rate-2"):
        assert text.count(f'id="{anchor}"') == 1


def test_a_claim_without_a_figure_of_its_own_gets_that_of_its_experiment(tmp_path: Path) -> None:
    claim = {**make_claims()["claims"][0], "experiment": "factors", "figures": ["missing"]}
    claim["evidence"] = "evidence/factors"
    document = {**make_claims(), "claims": [claim]}
    _write_evidence(tmp_path / "evidence" / "factors", "factors")
    (tmp_path / "claims.json").write_text(json.dumps(seal(document)))
    (only,) = arrange_contents(read_sources([tmp_path])).claims
    assert only["figures"] == ["factors"]


def _damage_json(folder: Path) -> None:
    (folder / "claims.json").write_text("{")


def _rename_kind(folder: Path) -> None:
    (folder / "claims.json").write_text(json.dumps({**make_claims(), "kind": "notes"}))


def _drop_title(folder: Path) -> None:
    document = make_claims()
    del document["claims"][0]["title"]
    (folder / "claims.json").write_text(json.dumps(seal(document)))


def _drop_evidence(folder: Path) -> None:
    shutil.rmtree(folder / "evidence" / "rates-1a2b3c4d")


def _damage_arrays(folder: Path) -> None:
    (arrays,) = (folder / "evidence" / "rates-1a2b3c4d").glob("*.npz")
    arrays.write_bytes(b"nothing")


def _drop_array(folder: Path) -> None:
    arrays = {key: value for key, value in EVIDENCE["rates"].items() if key != "norm"}
    place = folder / "evidence" / "rates-1a2b3c4d"
    write_evidence(place, Evidence("rates", {}, arrays))


def _reshape_array(folder: Path) -> None:
    arrays = {**EVIDENCE["rates"], "norm": np.ones(3)}
    place = folder / "evidence" / "rates-1a2b3c4d"
    write_evidence(place, Evidence("rates", {}, arrays))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_damage_json, "damaged"),
        (_rename_kind, "kind 'notes'"),
        (_drop_title, "title"),
        (_drop_evidence, "no run.json"),
        (_damage_arrays, "sha256"),
        (_drop_array, "norm"),
        (_reshape_array, "rates"),
    ],
)
def test_a_damaged_folder_is_named_and_no_page_is_written(
    damage, message: str, claims_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(claims_folder, tmp_path / "out")
    damage(folder)
    with pytest.raises(ReportError, match=message):
        write_report([folder], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_nothing_to_report_on_is_said(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no folder was given"):
        write_report([], tmp_path / "r.html")
    with pytest.raises(ReportError, match="is no folder"):
        write_report([tmp_path / "missing"], tmp_path / "r.html")
    with pytest.raises(ReportError, match="nothing to report on"):
        write_report([tmp_path], tmp_path / "r.html")


def test_a_run_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "x", "cooking", {}, {})
    with pytest.raises(ReportError, match="kind 'cooking'"):
        write_report([tmp_path / "x"], tmp_path / "r.html")


def test_a_page_that_cannot_be_written_is_refused_before_the_work(
    claims_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ReportError, match="is a folder"):
        write_report([claims_folder], tmp_path)
    with pytest.raises(ReportError, match=r"there is no folder .*no, make it first"):
        write_report([claims_folder], tmp_path / "no" / "r.html")
    for name, end in (("r.pdf", ".pdf"), ("r", "nothing")):
        with pytest.raises(ReportError, match=rf"ends in {end}: .*\.html, \.htm .*\.md"):
            write_report([claims_folder], tmp_path / name)
        assert not (tmp_path / name).exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="is a file"):
        write_report([claims_folder], tmp_path / "r.html", tmp_path / "file")
    assert issubclass(ReportError, MirrorMarginError)
    assert issubclass(ReportError, ValueError)


@pytest.mark.parametrize("name", ["r.htm", "r.HTML"])
def test_a_page_may_end_in_htm_and_in_capitals(
    name: str, claims_folder: Path, tmp_path: Path
) -> None:
    text = write_report([claims_folder], tmp_path / name).read_text()
    assert text.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("module", "figures"), [("plotly.offline", None), ("jinja2", None), ("matplotlib", "figures")]
)
def test_a_missing_library_says_what_to_install(
    module: str, figures: str | None, claims_folder: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    folder = None if figures is None else tmp_path / figures
    with pytest.raises(ReportError, match=re.escape("pip install 'mirrormargin[report]'")):
        write_report([claims_folder], tmp_path / "r.html", folder)
