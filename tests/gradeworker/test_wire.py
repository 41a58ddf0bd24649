import contextlib
import json
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradeworker import wire

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


def equal(a, b):
    if isinstance(a, float) and a != a:
        return isinstance(b, float) and b != b
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@given(plain)
def test_plain_values_survive(value):
    assert equal(wire.decode(wire.encode(value)), value)


DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool]


@given(plain)
def test_a_clone_is_what_the_bytes_would_give(value):
    assert equal(wire.clone(value), wire.decode(wire.encode(value)))


def test_a_clone_shares_no_memory():
    value = {"a": [torch.zeros(2)], "b": (wire.Build("m", "f", {"x": [1]}),)}
    copy = wire.clone(value, allow_build=True)
    copy["a"][0].fill_(1)
    copy["b"][0].kwargs["x"].append(2)
    assert value["a"][0].sum() == 0
    assert value["b"][0].kwargs == {"x": [1]}
    with pytest.raises(wire.WireError):
        wire.clone(value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (5, 7)])
def test_tensors_survive(dtype, shape):
    tensor = (torch.randn(shape) * 3).to(dtype)
    back = wire.clone(tensor)
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_strides_survive_and_memory_is_not_shared():
    tensor = torch.randn(4, 6).t()[1:]
    back = wire.clone(tensor)
    assert back.stride() == tensor.stride()
    assert torch.equal(back, tensor)
    back.zero_()
    assert tensor.abs().sum() > 0


def test_special_numbers_survive_in_tensors():
    tensor = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    back = wire.clone(tensor)
    assert torch.equal(back.isnan(), tensor.isnan())
    assert torch.equal(back[1:], tensor[1:])


class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True


def test_a_subclass_is_reduced_to_its_bytes():
    lying = torch.ones(3).as_subclass(Liar)
    back = wire.clone(lying)
    assert type(back) is torch.Tensor
    assert back.tolist() == [1, 1, 1]


ODD = [object(), np.ones(3), torch.ones(2, 2).to_sparse(), torch.ones(2, device="meta"), 1j,
       torch.ones(2, dtype=torch.complex128)]


@pytest.mark.parametrize("value", ODD)
def test_what_has_no_encoding_becomes_opaque(value):
    assert isinstance(wire.clone(value), wire.Opaque)


@pytest.mark.parametrize("value", ODD)
def test_what_has_no_encoding_has_none_in_bytes_either(value):
    assert isinstance(wire.decode(wire.encode(value)), wire.Opaque)


def test_a_tensor_in_two_places_travels_once():
    twice = torch.randn(1000)
    data = wire.encode([twice, (twice,), twice.clone()])
    assert 8_000 < len(data) < 9_000
    first, (again,), clone = wire.decode(data)
    assert torch.equal(first, twice)
    assert torch.equal(again, twice)
    assert torch.equal(clone, twice)


def test_int_subclass_and_str_subclass_are_not_believed():
    class Always(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    assert isinstance(wire.clone(Always(3)), wire.Opaque)


def test_deep_nesting_does_not_kill():
    value: list = []
    for _ in range(500):
        value = [value]
    wire.clone(value)


def test_build_is_refused_in_results():
    data = wire.encode(wire.Build("m", "f", {}))
    assert wire.decode(data, allow_build=True) == wire.Build("m", "f", {})
    with pytest.raises(wire.WireError):
        wire.decode(data)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused_and_never_raise_anything_else(data):
    with contextlib.suppress(wire.WireError):
        wire.decode(data)


@settings(max_examples=200)
@given(st.integers(0, 400), st.integers(0, 255))
def test_flipped_bytes_give_a_value_or_a_wire_error(position, byte):
    data = bytearray(wire.encode([torch.randn(3, 4).t(), {"a": 1}]))
    data[position % len(data)] = byte
    with contextlib.suppress(wire.WireError):
        wire.decode(bytes(data))


@pytest.mark.parametrize("stride", [[1 << 40, 1], [-1, 1], [0, 0], [1]])
def test_odd_strides_are_refused(stride):
    data = wire.encode(torch.randn(4, 6).t())
    (length,) = struct.unpack_from("<Q", data)
    tree = json.loads(data[8 : 8 + length])
    tree["stride"] = stride
    head = json.dumps(tree).encode()
    with pytest.raises(wire.WireError):
        wire.decode(struct.pack("<Q", len(head)) + head + data[8 + length :])
