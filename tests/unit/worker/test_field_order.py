"""The order of the fields of stored results."""

from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
from pydantic import BaseModel

from schemas.grounding import Claim, Evidence, Verdict
from worker.ledger.field_order import ordered_class

CLAIM = Claim(
    text="a", start_pos=0, end_pos=1, verdict=Verdict.SUPPORTED, evidence=(Evidence(source_index=0, start=0, end=2),)
)


def shuffle(value: Any) -> Any:
    """The value with the keys of its objects as ``jsonb`` orders them."""
    if isinstance(value, list):
        return [shuffle(item) for item in value]
    if isinstance(value, dict):
        return {key: shuffle(value[key]) for key in sorted(value, key=lambda key: (len(key), key))}
    return value


def read(stored: bytes) -> Any:
    return msgspec.json.decode(stored, type=ordered_class(Claim))


def test_a_document_is_written_as_its_model_writes_it() -> None:
    document = shuffle(CLAIM.model_dump(mode="json"))
    stored = msgspec.json.encode(document)
    assert stored != CLAIM.model_dump_json().encode()

    assert msgspec.json.encode(read(stored)) == CLAIM.model_dump_json().encode()


def test_free_values_are_written_as_everywhere_else() -> None:
    class Free(BaseModel):
        value: dict[str, Any]

    numbers = [0.1, 1.0, -0.0, 1e-7, 1e-5, 5e-324, 1e15, 2**63, 2**64 - 1]
    text = "".join(map(chr, range(0xD800))) + "\U0001f600"
    content = orjson.dumps({"value": {"numbers": numbers, "text": text, "none": None, "yes": [True, {}]}})

    assert msgspec.json.encode(msgspec.json.decode(content, type=ordered_class(Free))) == content


@pytest.mark.parametrize(
    "change", [lambda claim: claim.pop("score"), lambda claim: claim["evidence"][0].update({"page": 1})]
)
def test_a_document_with_other_fields_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    document = CLAIM.model_dump(mode="json")
    change(document)

    with pytest.raises(msgspec.ValidationError):
        read(msgspec.json.encode(document))


def test_a_field_of_several_models_has_no_order() -> None:
    class Either(BaseModel):
        part: Claim | Evidence

    with pytest.raises(TypeError, match="several models"):
        ordered_class(Either)
