"""The packed parts of a row give what was packed, and what is short or would change stays as it is."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import make_request
from worker.ledger.packing import LEAST_BYTES, compress, decompress, split_request, whole_request

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=200)
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False), _TEXTS
)
_REQUESTS = st.fixed_dictionaries(
    {
        "query": _TEXTS,
        "context": st.lists(st.fixed_dictionaries({"content": _TEXTS, "metadata": st.dictionaries(_TEXTS, _VALUES)})),
        "metadata": st.dictionaries(_TEXTS, _VALUES),
    }
)


@given(request=_REQUESTS, filler=st.sampled_from(["", "y" * LEAST_BYTES]))
def test_a_request_comes_back_whole(request: dict[str, Any], filler: str) -> None:
    request["metadata"]["filler"] = filler
    head, sources = split_request(orjson.dumps(request))

    whole = whole_request(orjson.loads(head), sources)
    assert whole == {"config": {}, **request} if sources else request
    if filler and request["context"]:
        assert sources is None or orjson.loads(head)["context"] == len(request["context"])


def test_the_sources_of_a_long_request_are_packed() -> None:
    stored = make_request(context=("The copy is ready at nine. " * 200, "second")).model_dump_json().encode()
    head, sources = split_request(stored)

    assert sources is not None
    assert len(sources) < 1_000
    assert orjson.loads(head)["context"] == 2
    assert b"copy is ready at nine" not in head


@pytest.mark.parametrize("number", ["12345678901234567890123", "-98765432109876543210"])
def test_whole_numbers_beyond_64_bits_are_not_touched(number: str) -> None:
    stored = b'{"context":[{"content":"%b","metadata":{"account":%b}}]}' % (b"z" * LEAST_BYTES, number.encode())

    assert split_request(stored) == (stored, None)


@given(content=st.one_of(st.binary(max_size=300), st.binary(max_size=100).map(lambda part: part * 1_000)))
def test_any_bytes_come_back(content: bytes) -> None:
    assert decompress(compress(content)) == content


def test_a_frame_is_one_of_zstandard() -> None:
    frame = bytes.fromhex("28b52ffd201ad1000054686520636f7079206973207265616479206174206e696e652e")

    assert decompress(frame) == b"The copy is ready at nine."
