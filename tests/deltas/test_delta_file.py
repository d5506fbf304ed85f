"""Files of deltas: what is read is what was written, or one error of ours."""

import json
import math
import random
import zlib

import numpy as np
import pytest
import torch
from fine_tuned import bits, fine_tune, make_base
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

import mirrormargin as mm
from mirrormargin.deltas.rice import encode_positions
from mirrormargin.deltas.space import Space
from mirrormargin.deltas.values import decode_values, encode_values
from mirrormargin.runs import seal_tensors

BASE = make_base()
DELTA = mm.SparseDelta.extract(
    fine_tune(BASE), BASE, keep=20, whole=["head.*"], info={"classes": ["no", "ja ä"], "lr": 0.1}
)


@pytest.fixture
def path(tmp_path):
    DELTA.save(tmp_path / "delta.safetensors")
    return tmp_path / "delta.safetensors"


def describe(delta):
    """Everything it holds, to be compared bit by bit."""
    whole = {name: (str(one.dtype), one.tolist()) for name, one in delta.whole.items()}
    return (
        dict(delta.space.shapes), delta.space.digests, dict(delta.space.tied),
        delta.positions.tolist(), str(delta.codes.dtype), delta.codes.tolist(), delta.scale,
        whole, dict(delta.info),
    )  # fmt: skip


@pytest.mark.parametrize("values", [torch.float16, torch.bfloat16, torch.float32])
def test_a_delta_comes_back_from_its_file(tmp_path, values):
    delta = mm.SparseDelta.extract(fine_tune(BASE), BASE, keep=20, values=values)
    size = delta.save(tmp_path / "delta")
    back = mm.SparseDelta.load(str(tmp_path / "delta"))
    assert size == (tmp_path / "delta").stat().st_size == delta.num_bytes == back.num_bytes
    assert describe(back) == describe(delta)
    model = make_base()
    before = bits(model)
    back.apply(model)
    back.remove(model)
    assert bits(model) == before


def test_equal_deltas_are_equal_files(path, tmp_path):
    mm.SparseDelta.load(path).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert describe(mm.SparseDelta.load(path)) == describe(DELTA)


def test_a_delta_of_nothing_comes_back(tmp_path):
    delta = mm.SparseDelta.extract(BASE, BASE, keep=5)
    delta.save(tmp_path / "delta")
    back = mm.SparseDelta.load(tmp_path / "delta")
    assert back.num_values == 0
    assert math.isnan(back.bytes_per_value)
    assert back.to_dense() == {}
    back.apply(make_base())


def make_large(count, shapes, dtype=torch.float16):
    space = Space(dict(sorted(shapes.items())), ("ab" * 32, "cd" * 32, "ef" * 32))
    generator = np.random.default_rng(0)
    positions = np.sort(generator.choice(space.size, count, replace=False))
    values = torch.from_numpy(generator.normal(size=count)).float() * 1e-3
    return mm.SparseDelta(space, positions, *encode_values(values, dtype))


def test_ten_thousand_of_ten_million_numbers_fit_into_40_kilobytes(tmp_path):
    """The matrices of the six layers of MiniLM, by their names."""
    parts = {
        **{f"attention.self.{one}": (384, 384) for one in ("query", "key", "value")},
        "attention.output.dense": (384, 384),
        "intermediate.dense": (1536, 384),
        "output.dense": (384, 1536),
    }
    shapes = {
        f"backbone.encoder.layer.{layer}.{name}.weight": shape
        for layer in range(6)
        for name, shape in parts.items()
    }
    delta = make_large(10_000, shapes)
    assert delta.space.size == 10_616_832
    assert delta.save(tmp_path / "delta") <= 40_000
    assert delta.bytes_per_value < 3.7
    assert describe(mm.SparseDelta.load(tmp_path / "delta")) == describe(delta)


def test_tensors_without_a_value_cost_nothing(tmp_path):
    shapes = {"layer.weight": (300, 400)}
    alone = make_large(500, shapes)
    space = Space({"a.table": (5_000, 400), **shapes, "z": (7,)}, alone.space.digests)
    delta = mm.SparseDelta(space, alone.positions + 2_000_000, alone.codes, alone.scale)
    assert delta.save(tmp_path / "delta") < alone.save(tmp_path / "alone") + 60
    assert describe(mm.SparseDelta.load(tmp_path / "delta")) == describe(delta)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.data())
def test_positions_without_unused_tensors_come_back(lengths, data):
    space = Space({f"{k}": (length,) for k, length in enumerate(lengths)}, ())
    chosen = data.draw(st.sets(st.integers(0, max(space.size - 1, 0))))
    positions = np.array(sorted(one for one in chosen if one < space.size), dtype=np.int64)
    unused, short = space.leave_out(positions)
    assert (short < space.measure(unused)).all()
    assert np.array_equal(space.put_back(unused, short), positions)


def test_files_of_the_first_version_are_read(path):
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    layout = json.loads(zlib.decompress(tensors["layout"].numpy().tobytes()))
    del layout["unused"]
    code = encode_positions(DELTA.positions)
    layout["k"] = code.k
    tensors["layout"] = torch.tensor(list(zlib.compress(json.dumps(layout).encode())))
    tensors["layout"] = tensors["layout"].to(torch.uint8)
    tensors["quotients"] = torch.from_numpy(code.quotients)
    tensors["remainders"] = torch.from_numpy(code.remainders)
    path.write_bytes(seal_tensors(tensors, {"format": "mirrormargin-delta", "version": "1"}))
    assert describe(mm.SparseDelta.load(path)) == describe(DELTA)


@given(
    st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) > 1e-30),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
)
def test_no_value_overflows_or_vanishes(numbers, dtype):
    values = torch.tensor(numbers)
    codes, scale = encode_values(values, dtype)
    back = decode_values(codes, scale)
    assert codes.isfinite().all()
    assert torch.equal(codes.sign().float(), values.sign())
    large = values.abs() >= values.abs().max() * 2.0**-28
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(back[large], values[large], rtol=eps, atol=0.0)


def test_the_layout_is_documented(path):
    """What docs/deltas.md says of a file, read with nothing of ours."""
    with safe_open(path, "np") as file:
        assert file.metadata()["format"] == "mirrormargin-delta"
        layout = json.loads(zlib.decompress(file.get_tensor("layout").tobytes()))
        unary = np.unpackbits(file.get_tensor("quotients"))
        low = np.unpackbits(file.get_tensor("remainders"))
        values = file.get_tensor("values").astype(float) * layout["scale"]
        assert "whole:head.weight" in file.keys()  # noqa: SIM118
    k, position, positions = layout["k"], -1, []
    ends = np.flatnonzero(unary)
    for n, end in enumerate(ends):
        quotient = int(end - (ends[n - 1] if n else -1) - 1)
        rest = int("0" + "".join(map(str, low[n * k : (n + 1) * k])), 2)
        position += (quotient << k) + rest + 1
        positions.append(position)
    lengths = [math.prod(shape) for shape in layout["tensors"].values()]
    for number in layout["unused"]:  # in rising order
        start = sum(lengths[:number])
        positions = [one + lengths[number] * (one >= start) for one in positions]
    assert positions == DELTA.positions.tolist()
    assert np.array_equal(values, DELTA.values.double().numpy())
    assert list(layout["tensors"]) == sorted(layout["tensors"])


def test_every_flipped_bit_is_noticed_or_harmless(path):
    whole, refused = path.read_bytes(), 0
    for bit in random.Random(1).sample(range(8 * len(whole)), 600):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            back = mm.SparseDelta.load(path)
        except mm.DeltaError:
            refused += 1
            continue
        assert describe(back) == describe(DELTA)
    assert refused > 500


def test_a_file_that_was_cut_off_is_refused(path):
    whole = path.read_bytes()
    for size in random.Random(0).sample(range(len(whole)), 60):
        path.write_bytes(whole[:size])
        with pytest.raises(mm.DeltaError, match="damaged"):
            mm.SparseDelta.load(path)


def test_files_that_hold_no_delta_are_refused(tmp_path, path):
    with pytest.raises(mm.DeltaError, match="does not exist"):
        mm.SparseDelta.load(tmp_path / "nowhere")
    with pytest.raises(mm.DeltaError):
        mm.SparseDelta.load(tmp_path)
    save_file({"w": torch.ones(2)}, tmp_path / "weights")
    with pytest.raises(mm.DeltaError, match="holds no delta"):
        mm.SparseDelta.load(tmp_path / "weights")
    save_file(
        {"w": torch.ones(2)}, tmp_path / "new", {"format": "mirrormargin-delta", "version": "9"}
    )
    with pytest.raises(mm.DeltaError, match="version '9'"):
        mm.SparseDelta.load(tmp_path / "new")
    save_file(
        {"w": torch.ones(2)}, tmp_path / "old", {"format": "mirrormargin-delta", "version": "1"}
    )
    with pytest.raises(mm.DeltaError, match="no checksum"):
        mm.SparseDelta.load(tmp_path / "old")


def forge(path, change_layout=None, change=None, packed=None):
    """A file with a right seal, as a stranger may write it."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    layout = json.loads(zlib.decompress(tensors["layout"].numpy().tobytes()))
    if change_layout:
        change_layout(layout)
        packed = zlib.compress(json.dumps(layout).encode())
    if packed is not None:
        tensors["layout"] = torch.tensor(list(packed), dtype=torch.uint8)
    if change:
        change(tensors)
    path.write_bytes(seal_tensors(tensors, {"format": "mirrormargin-delta", "version": "2"}))


def set_layout(**entries):
    return lambda layout: layout.update(entries)


LAYOUTS = {
    "a count beyond the values": set_layout(count=21),
    "a huge count": set_layout(count=10**15),
    "a negative count": set_layout(count=-1),
    "a count that is a text": set_layout(count="20"),
    "true for a count": set_layout(count=True),
    "scale nan": set_layout(scale=math.nan),
    "scale inf": set_layout(scale=1e999),
    "a scale that overflows": set_layout(scale=1e300),
    "a scale of 0": set_layout(scale=0.0),
    "a negative scale": set_layout(scale=-1.0),
    "k too large": set_layout(k=60),
    "another k": set_layout(k=3),
    "no base": set_layout(base=[]),
    "a base that is no sha256": set_layout(base=["x"]),
    "positions beyond the space": set_layout(tensors={"a": [3]}),
    "no tensors": set_layout(tensors={}),
    "a negative length": set_layout(tensors={"a": [-8, -8]}),
    "a shape beyond all": set_layout(tensors={"a": [2**40, 2**40]}),
    "a shape of many axes": set_layout(tensors={"a": [1] * 65}),
    "a shape of texts": set_layout(tensors={"a": ["64"]}),
    "tensors in disorder": set_layout(tensors={"b": [60], "a": [60]}),
    "a tie to nothing": set_layout(tied={"a": "b"}),
    "an unused tensor beyond the last": set_layout(unused=[99]),
    "a negative unused tensor": set_layout(unused=[-1]),
    "no tensor used": set_layout(unused=[0, 1, 2, 3]),
    "a key too many": set_layout(more=1),
    "a list": lambda layout: layout.clear(),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_sealed_file_with_an_absurd_layout_is_refused(path, name):
    forge(path, LAYOUTS[name])
    with pytest.raises(mm.DeltaError, match="is damaged") as caught:
        mm.SparseDelta.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("values"),
        lambda tensors: tensors.pop("layout"),
        lambda tensors: tensors.update(values=torch.ones(20, dtype=torch.float64)),
        lambda tensors: tensors.update(values=torch.ones(4, 5, dtype=torch.float16)),
        lambda tensors: tensors.update(values=torch.full((20,), math.nan, dtype=torch.float16)),
        lambda tensors: tensors.update(quotients=torch.zeros(0, dtype=torch.uint8)),
        lambda tensors: tensors.update(quotients=torch.full((500,), 255, dtype=torch.uint8)),
        lambda tensors: tensors.update(quotients=torch.ones(3)),
        lambda tensors: tensors.update(remainders=torch.zeros(1000, dtype=torch.uint8)),
        lambda tensors: tensors.update(more=torch.ones(1)),
        lambda tensors: tensors.update({"whole:hidden.weight": torch.ones(1)}),
    ],
)
def test_a_sealed_file_with_absurd_tensors_is_refused(path, change):
    forge(path, change=change)
    with pytest.raises(mm.DeltaError, match="is damaged"):
        mm.SparseDelta.load(path)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"no zlib",
        zlib.compress(b"[1]"),
        zlib.compress(b"{"),
        zlib.compress(b"[" * 10_000),
        zlib.compress(b"{}") + b"more",
        zlib.compress(b"{}")[:-3],
        zlib.compress(b" " * (1 << 28)),
    ],
    ids=["empty", "bytes", "list", "half", "deep", "more", "cut", "bomb"],
)
def test_a_layout_that_cannot_be_unpacked_is_refused(path, packed):
    forge(path, packed=packed)
    with pytest.raises(mm.DeltaError, match="is damaged"):
        mm.SparseDelta.load(path)


def test_a_claimed_tensor_takes_no_memory(path):
    def claim(layout):
        layout.update(tensors={"a": [2**20, 2**25]}, tied={}, unused=[])

    forge(path, claim)
    delta = mm.SparseDelta.load(path)
    assert delta.num_values == 20
    assert len(repr(delta)) < 200
    with pytest.raises(mm.DeltaError, match="give at most"):
        delta.to_dense()
    with pytest.raises(mm.DeltaError, match="has no tensor 'a'"):
        delta.apply(make_base())
