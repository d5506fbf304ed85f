"""Downloads from a server on this machine: interrupted, refused, damaged."""

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from mirrormargin.data.download import TRIES, RemoteFile, download
from mirrormargin.errors import DataError

CONTENTS = random.Random(0).randbytes(3_000_000)


@pytest.fixture
def remote(server):
    server.files["data.bin"] = CONTENTS
    digest = hashlib.sha256(CONTENTS).hexdigest()
    return RemoteFile(server.url("data.bin"), "set/data.bin", len(CONTENTS), digest)


def list_names(folder):
    return sorted(path.name for path in (folder / "set").iterdir() if path.suffix != ".lock")


def test_a_file_comes_whole(server, remote, tmp_path):
    seen = []
    path = download(remote, tmp_path, lambda *numbers: seen.append(numbers))
    assert path == tmp_path / "set" / "data.bin"
    assert path.read_bytes() == CONTENTS
    assert list_names(tmp_path) == ["data.bin"]
    assert seen[-1] == (len(CONTENTS), len(CONTENTS))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_file_that_is_there_is_not_fetched_again(server, remote, tmp_path):
    download(remote, tmp_path)
    download(remote, tmp_path)
    assert server.asked == [None]


def test_after_a_break_it_goes_on_where_it_was(server, remote, tmp_path):
    server.drops = [1_000_000, 500_000]
    assert download(remote, tmp_path).read_bytes() == CONTENTS
    assert server.asked == [None, "bytes=1000000-", "bytes=1500000-"]


def test_a_later_call_goes_on_with_what_an_earlier_one_left(server, remote, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "data.bin.part").write_bytes(CONTENTS[:2_000_000])
    assert download(remote, tmp_path).read_bytes() == CONTENTS
    assert server.asked == ["bytes=2000000-"]


def test_a_part_that_is_all_needs_no_server(server, remote, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "data.bin.part").write_bytes(CONTENTS)
    assert download(remote, tmp_path).read_bytes() == CONTENTS
    assert server.asked == []


def test_a_server_without_ranges_begins_again(server, remote, tmp_path):
    server.ranges = False
    server.drops = [1_000_000]
    assert download(remote, tmp_path).read_bytes() == CONTENTS
    assert server.asked == [None, "bytes=1000000-"]


def test_a_part_from_another_place_is_not_appended(server, remote, tmp_path):
    server.drops = [1_000_000]
    server.shift = 10
    assert download(remote, tmp_path).read_bytes() == CONTENTS
    assert server.asked == [None, "bytes=1000000-", None]


def test_a_part_longer_than_the_file_is_begun_again(server, remote, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "data.bin.part").write_bytes(CONTENTS + b"more")
    assert download(remote, tmp_path).read_bytes() == CONTENTS
    assert server.asked[-1] is None


def test_other_contents_are_refused_and_discarded(server, remote, tmp_path):
    server.files["data.bin"] = CONTENTS[::-1]
    with pytest.raises(DataError, match=r"data.bin is not the published file: its sha256 is"):
        download(remote, tmp_path)
    assert list_names(tmp_path) == []


def test_a_part_of_another_file_is_found_out(server, remote, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "data.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match="is not the published file"):
        download(remote, tmp_path)
    assert download(remote, tmp_path).read_bytes() == CONTENTS


def test_no_more_is_kept_than_the_file_has(server, remote, tmp_path):
    longer = RemoteFile(remote.url, remote.name, 2_000_000, remote.sha256)
    with pytest.raises(DataError, match=r"bytes, not 2,000,000, or even more"):
        download(longer, tmp_path)
    assert list_names(tmp_path) == []


def test_a_file_of_unknown_size_is_limited_too(server, remote, tmp_path, monkeypatch):
    monkeypatch.setattr("mirrormargin.data.download.MOST_BYTES", 2_000_000)
    with pytest.raises(DataError, match=r"bytes, not 2,000,000, or even more"):
        download(RemoteFile(remote.url, remote.name), tmp_path)
    assert list_names(tmp_path) == []


@pytest.mark.parametrize("contents", [CONTENTS[:-1], CONTENTS + b"x"])
def test_another_size_is_refused(server, remote, tmp_path, contents):
    server.files["data.bin"] = contents
    with pytest.raises(DataError, match=r"it has [\d,]+ bytes, not 3,000,000"):
        download(remote, tmp_path)
    assert list_names(tmp_path) == []


def test_a_wrong_file_that_was_put_there_is_named_and_kept(server, remote, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "data.bin").write_bytes(b"something else")
    with pytest.raises(DataError, match=r"data.bin is not the published file: it has 14 bytes"):
        download(remote, tmp_path)
    assert list_names(tmp_path) == ["data.bin"]
    assert server.asked == []


def test_what_is_not_there_is_not_tried_again(server, remote, tmp_path):
    server.files.clear()
    with pytest.raises(DataError, match=r"data.bin cannot be fetched: the server answered 404"):
        download(remote, tmp_path)
    assert len(server.asked) == 1
    assert list_names(tmp_path) == []


def test_a_busy_server_is_asked_again(server, remote, tmp_path):
    server.statuses = [503, 429]
    assert download(remote, tmp_path).read_bytes() == CONTENTS
    assert len(server.asked) == 3


def test_it_gives_up_in_the_end_and_keeps_what_came(server, remote, tmp_path):
    server.drops = [1000] + [0] * TRIES
    with pytest.raises(DataError, match=r"closed before the end, \d times. Check the network"):
        download(remote, tmp_path)
    assert list_names(tmp_path) == ["data.bin.part"]
    server.drops = []
    assert download(remote, tmp_path).read_bytes() == CONTENTS


def test_no_server_at_all_is_said(server, remote, tmp_path):
    url = server.url("data.bin")
    server.shutdown()
    server.socket.close()
    with pytest.raises(DataError, match=r"127.0.0.1.* cannot be fetched: .*refused"):
        download(RemoteFile(url, "set/data.bin"), tmp_path)


def test_two_at_once_fetch_once(server, remote, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: download(remote, tmp_path), range(2)))
    assert [path.read_bytes() == CONTENTS for path in paths] == [True, True]
    assert server.asked == [None]


def test_a_folder_that_cannot_be_made_is_named(server, remote, tmp_path):
    (tmp_path / "set").write_text("a file")
    with pytest.raises(DataError, match=r"data.bin cannot be written"):
        download(remote, tmp_path)
