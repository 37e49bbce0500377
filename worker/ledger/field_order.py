"""Makes classes that read stored JSON and write it with its fields in the order of a model, without a validation of the values."""

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel


@cache
def ordered_class(model: type[BaseModel]) -> type[msgspec.Struct]:
    """The class of the documents of a model, and of the models within it; other values are read as they are.

    A document needs exactly the fields of its model: msgspec refuses it otherwise, as one of old.
    """
    fields = [(name, kind_of(field.annotation)) for name, field in model.model_fields.items()]
    # The search for garbage need not look at what is dropped as soon as it is written.
    return msgspec.defstruct(model.__name__, fields, forbid_unknown_fields=True, gc=False)


def kind_of(annotation: Any) -> Any:
    """The type as which a field is read; ``Any`` where it holds no model."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind_of(arguments[0])
    if origin in {Union, UnionType}:
        kinds = [kind for argument in arguments if argument is not NoneType and (kind := kind_of(argument)) is not Any]
        if len(kinds) > 1:
            raise TypeError(f"{annotation} may hold several models: which of them a document has is not known")
        return kinds[0] | None if kinds else Any
    if origin in {tuple, list}:
        kind = kind_of(arguments[0])
        return Any if kind is Any else list[kind]  # type: ignore[valid-type]
    return ordered_class(annotation) if isinstance(annotation, type) and issubclass(annotation, BaseModel) else Any
