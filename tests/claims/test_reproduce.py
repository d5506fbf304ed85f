"""Running claims: the same numbers however often, on however many cores, stopped or not."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mirrormargin.claims import find_claims, reproduce, workers
from mirrormargin.claims.claims_file import CLAIMS_FILE
from mirrormargin.errors import ClaimError, MirrorMarginError, RunError
from mirrormargin.runs import hold_lock, seal

FAST = ["A.alg", "A.thm.path"]  # two experiments, of one part and of nine


def strip(document):
    return {
        key: value
        for key, value in document.items()
        if key not in ("environment", "seconds", "checksum")
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished")
    return out, reproduce(find_claims(FAST), out)


def test_the_document_is_what_is_written(finished):
    out, document = finished
    assert json.loads((out / CLAIMS_FILE).read_text()) == seal(document)


def test_every_row_has_its_numbers_and_its_command(finished):
    _, document = finished
    assert [row["id"] for row in document["claims"]] == ["A.alg.step", "A.alg.gd", "A.thm.path"]
    for row in document["claims"]:
        assert row["verdict"] == "reproduced"
        assert row["measured"]
        assert row["tests"]
        assert row["command"] == f"mirrormargin reproduce {row['id']} --profile quick --seed 0"
        assert row["origin"] == {"kind": "run now"}


def test_evidence_is_where_the_row_says_and_parts_are_gone(finished):
    out, document = finished
    for row in document["claims"]:
        assert (out / row["evidence"] / "run.json").is_file()
        assert not (out / row["evidence"] / "parts").exists()


@pytest.mark.slow
def test_a_second_run_on_two_processes_gives_the_same_document(finished, tmp_path):
    _, document = finished
    assert strip(reproduce(find_claims(FAST), tmp_path, workers=2)) == strip(document)


def test_what_is_there_is_not_run_again(finished, monkeypatch):
    out, document = finished

    def refuse(*_):
        raise AssertionError("nothing is left to run")

    monkeypatch.setattr(workers.Part, "run", refuse)
    assert strip(reproduce(find_claims(FAST), out)) == strip(document)


def test_fresh_runs_again(tmp_path):
    claims = find_claims(["A.alg"])
    reproduce(claims, tmp_path)
    seen = []
    reproduce(claims, tmp_path, fresh=True, progress=lambda *state: seen.append(state))
    assert seen == [(0, 1, ""), (1, 1, "identities")]


def test_damaged_evidence_is_run_again(tmp_path):
    claims = find_claims(["A.alg"])
    before = reproduce(claims, tmp_path)
    (arrays,) = tmp_path.glob("evidence/*/arrays-*.npz")
    arrays.write_bytes(b"nonsense")
    assert strip(reproduce(claims, tmp_path)) == strip(before)


def test_another_seed_runs_other_problems_beside_the_old(tmp_path):
    claims = find_claims(["A.alg.gd"])
    one = reproduce(claims, tmp_path, seed=0)["claims"][0]
    two = reproduce(claims, tmp_path, seed=1)["claims"][0]
    assert one["evidence"] != two["evidence"]
    assert one["tests"] != two["tests"]


def test_claims_that_were_judged_before_stay_in_the_document(tmp_path):
    reproduce(find_claims(["A.alg.step", "A.tab.imdb"]), tmp_path)
    ids = [row["id"] for row in reproduce(find_claims(["A.alg.gd"]), tmp_path)["claims"]]
    assert ids == ["A.alg.step", "A.alg.gd", "A.tab.imdb"]
    ids = [row["id"] for row in reproduce(find_claims(["A.alg.gd"]), tmp_path, seed=1)["claims"]]
    assert ids == ["A.alg.gd"]


def test_a_claim_whose_evidence_is_gone_leaves_the_document(tmp_path):
    row = reproduce(find_claims(["A.alg.step"]), tmp_path)["claims"][0]
    shutil.rmtree(tmp_path / row["evidence"])
    ids = [row["id"] for row in reproduce(find_claims(["A.tab.imdb"]), tmp_path)["claims"]]
    assert ids == ["A.tab.imdb"]


def test_the_folder_of_a_run_is_refused(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunError, match="folder of a run"):
        reproduce(find_claims(["A.tab.imdb"]), tmp_path)


def test_a_claim_without_record_is_not_run_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr("mirrormargin.claims.trainings.find_record", lambda name: None)
    row = reproduce(find_claims(["A.tab.imdb"]), tmp_path)["claims"][0]
    assert row["verdict"] == "not run"
    assert row["note"].startswith("needs trainings (mirrormargin campaign)")
    assert row["note"].endswith("no record of such a run is stored")
    assert row["origin"] == {"kind": "none"}
    assert row["tests"] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"profile": "slow"}, "profile is 'slow': give one of quick, full, paper"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": True}, "seed is True"),
        ({"fresh": True, "train": False}, "leave out one of the two"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, options, message):
    with pytest.raises(ClaimError, match=message):
        reproduce(find_claims(["A.alg"]), tmp_path, **options)


def test_no_claims_are_refused(tmp_path):
    with pytest.raises(ClaimError, match="no claims"):
        reproduce([], tmp_path)


def test_an_unwritable_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be"):
        reproduce(find_claims(["A.tab.imdb"]), tmp_path / "file")


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_part_that_fails_says_so_and_the_others_are_kept(tmp_path, count):
    settings = {"p": [2.0], "num_seeds": 2, "num_radii": 5, "seed": 0}
    good = workers.Part("paths", settings, (2.0, 1), tmp_path / "good")
    bad = workers.Part("paths", settings, (0.5, 1), tmp_path / "bad")
    done = []
    with pytest.raises(MirrorMarginError, match=r"p is 0\.5"):
        workers.run_parts([good, bad], count, done.append)
    assert (tmp_path / "good" / "run.json").is_file() or count == 2
    assert not (tmp_path / "bad").exists()


def test_an_unforeseen_failure_of_a_process_names_the_part(tmp_path):
    broken = workers.Part("paths", {}, None, tmp_path / "broken")
    with pytest.raises(RuntimeError, match="paths, part None, failed: TypeError"):
        workers.run_parts([broken, broken], 2, print)


@pytest.mark.skipif(os.name == "nt", reason="sends SIGKILL")
def test_a_worker_that_dies_is_an_error_and_says_what_to_do(tmp_path):
    # A spawned worker imports the script under another name, and there a part kills its process.
    code = f"""
from pathlib import Path
from mirrormargin.claims import workers
from mirrormargin.errors import RunError

if __name__ == "__main__":
    parts = [workers.Part("paths", {{}}, i, Path({str(tmp_path)!r}) / str(i)) for i in range(2)]
    try:
        workers.run_parts(parts, 2, print)
    except RunError as error:
        print(error)
else:
    import os, signal
    workers.Part.run = lambda self: os.kill(os.getpid(), signal.SIGKILL)
"""
    script = tmp_path / "dying.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert "a process that ran some of the parts died" in done.stdout, done.stderr
    assert "run the same command again" in done.stdout


def start(out: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "mirrormargin", "reproduce", *FAST, "--out", str(out)]
    return subprocess.Popen(
        [*command, "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # Processes that a shell put into the background would ignore the interrupt.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def find_children(pid: int) -> list[int]:
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_killed_at_random_moments_it_resumes_to_the_same_document(finished, tmp_path):
    _, document = finished
    moments = random.Random(5)
    with_parts = 0
    for number in range(10):
        process = start(tmp_path)
        if number % 2:  # at any moment, mostly while it imports
            time.sleep(moments.uniform(0.0, 6.0))
        else:  # soon after a part was saved
            wait_for_a_part(tmp_path, process)
            time.sleep(moments.uniform(0.0, 0.4))
        children = find_children(process.pid)
        process.kill()
        process.communicate()
        wait_for_end(children)
        with_parts += bool(find_parts(tmp_path))
    last = start(tmp_path)
    text = last.communicate()[0].decode()
    assert last.returncode == 0, text
    assert strip(json.loads((tmp_path / CLAIMS_FILE).read_text())) == strip(document)
    assert not list(tmp_path.glob("evidence/*/parts"))
    assert with_parts, "no kill came while some parts were done and others not"


def test_stopped_between_parts_it_resumes_to_the_same_document(finished, tmp_path, monkeypatch):
    """What the slow tests do with signals, in one process."""
    _, document = finished
    run, done = workers.Part.run, []

    def run_four(part):
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(part)
        run(part)

    with monkeypatch.context() as patch:
        patch.setattr(workers.Part, "run", run_four)
        with pytest.raises(KeyboardInterrupt):
            reproduce(find_claims(FAST), tmp_path)
    assert find_parts(tmp_path)
    assert strip(reproduce(find_claims(FAST), tmp_path)) == strip(document)
    assert not list(tmp_path.glob("evidence/*/parts"))


def find_parts(out):
    return set(out.glob("evidence/*/parts/*/run.json"))


def wait_for_a_part(out, process):
    before, deadline = find_parts(out), time.monotonic() + 60
    while find_parts(out) <= before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def wait_for_end(processes):
    """Workers watch their parent: in the middle of a part they end with it."""
    deadline = time.monotonic() + 10
    while any(map(is_alive, processes)):
        assert time.monotonic() < deadline, "workers outlive a killed parent"
        time.sleep(0.02)


def test_two_commands_do_not_write_to_one_folder(tmp_path):
    with (
        hold_lock(tmp_path / ".lock", wait=False),
        pytest.raises(RunError, match="another command"),
    ):
        reproduce(find_claims(["A.tab.imdb"]), tmp_path)


def test_parts_that_a_kill_left_beside_whole_evidence_are_removed(tmp_path):
    claims = find_claims(["A.alg"])
    row = reproduce(claims, tmp_path)["claims"][0]
    left = tmp_path / row["evidence"] / "parts" / "0"
    left.mkdir(parents=True)
    reproduce(claims, tmp_path)
    assert not left.exists()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_an_interrupt_keeps_what_is_done_and_says_how_to_resume(tmp_path):
    process = start(tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("evidence/*/parts/*/run.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    text = process.communicate()[0].decode()
    assert process.returncode == 130
    assert "the same command resumes" in text
    assert "Traceback" not in text
