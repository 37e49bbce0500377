"""Puts the fields of stored JSON in the order of their models, as these would write them, without a validation of each."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

Document = dict[str, Any]
Order = Callable[[Any], Any]
"""Orders a value of JSON; raises ``KeyError`` if a model in it has not exactly its fields there, as in a document of old."""


def order_of(model: type[BaseModel]) -> Callable[[Document], Document]:
    """The function that orders the documents of a model and of the models within it; other objects stay as they are."""
    names = tuple(model.model_fields)
    nested = [(name, order) for name, field in model.model_fields.items() if (order := _order_within(field.annotation))]
    return partial(_in_order, names, _getter(names), nested)


def _getter(names: Sequence[str]) -> Callable[[Document], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda document: tuple([document[name] for name in names])


def _in_order(
    names: Sequence[str],
    values: Callable[[Document], tuple[Any, ...]],
    nested: Sequence[tuple[str, Order]],
    source: Document,
) -> Document:
    if len(source) != len(names):
        raise KeyError(*(source.keys() ^ names))
    document = dict(zip(names, values(source), strict=True))
    for name, order in nested:
        if document[name]:
            document[name] = order(document[name])
    return document


def _order_within(annotation: Any) -> Order | None:
    """The order of the values of a field; None where they hold no model."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _order_within(arguments[0])
    if origin in {Union, UnionType}:
        orders = [order for argument in arguments if argument is not NoneType and (order := _order_within(argument))]
        if len(orders) > 1:
            raise TypeError(f"{annotation} may hold several models: which of them a document has is not known")
        return orders[0] if orders else None
    if origin in {tuple, list}:
        order = _order_within(arguments[0])
        return None if order is None else partial(_each, order)
    return order_of(annotation) if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _each(order: Order, values: Sequence[Any]) -> list[Any]:
    return [order(value) for value in values]
