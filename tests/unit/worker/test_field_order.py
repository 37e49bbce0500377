"""The order of the fields of stored results."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from schemas.grounding import Claim, Evidence, Verdict
from worker.ledger.field_order import order_of

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


def test_a_document_is_written_as_its_model_writes_it() -> None:
    document = shuffle(CLAIM.model_dump(mode="json"))
    assert orjson.dumps(document) != CLAIM.model_dump_json().encode()

    assert orjson.dumps(order_of(Claim)(document)) == CLAIM.model_dump_json().encode()


@pytest.mark.parametrize(
    "change", [lambda claim: claim.pop("score"), lambda claim: claim["evidence"][0].update({"page": 1})]
)
def test_a_document_with_other_fields_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    document = CLAIM.model_dump(mode="json")
    change(document)

    with pytest.raises(KeyError):
        order_of(Claim)(document)


def test_a_field_of_several_models_has_no_order() -> None:
    class Either(BaseModel):
        part: Claim | Evidence

    with pytest.raises(TypeError, match="several models"):
        order_of(Either)
