"""Reads sources in the shapes that retrieval frameworks, vector stores and public data sets write them."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from shlex import quote
from typing import Any

from schemas.job import MAX_SOURCES, SHOWN_METADATA, SourceContext
from tasks.errors import InputError
from tasks.raw_jobs.left_over import is_of_dialogue, reads_like_a_text, texts_in
from tasks.raw_jobs.names import plain
from tasks.raw_jobs.printed import structure

TEXTS = (
    "content", "text", "page_content", "passage", "chunk", "paragraph", "body", "contents", "extracts", "page_snippet", "snippet",
    "excerpt", "wiki_context", "sentences", "sentence", "document", "abstract", "context", "markdown",
)  # fmt: skip
"""Names of a source's text, the first that is there."""

_ENDS_OF_TEXTS = frozenset({"text", "content", "context"})
_FACTS = frozenset(
    {"id", "type", "name", "title", "format", "hash", "length", "count", "index", "url", "score", "language"}
)
"""Ends of other names: ``chunk_text`` and ``text_en`` name a text, ``text_id`` does not."""

_TEXT_LISTS = ("contexts", "documents", "texts", "passages", "chunks", "paragraphs")
"""Names of a list of texts, each a source, beside lists of their facts."""

_ONE_TEXT = frozenset({"content", "sentences", "body"})
"""Names whose list alone is the parts of one text."""

_PRINTED = "_node_content"
"""Object of LlamaIndex that stores hold as its JSON."""

_WRAPPERS = (
    "node", "kwargs", "document", "_source", "fields", "payload", "entity", "properties", "_additional", "text_resource", _PRINTED,
)  # fmt: skip
"""Objects inside a source that hold it: LlamaIndex, LangChain, Cohere, Elasticsearch, Qdrant, Milvus, Weaviate, Vespa."""

_LISTS = (
    "source_nodes",
    "source_documents",
    "documents",
    "nodes",
    "hits",
    "matches",
    "results",
    "points",
    "objects",
    "value",
    "data",
    "ctxs",
    "contexts",
    "retrieval_results",
    "result",
    "root",
)
"""Names of the list of sources inside the whole answer of a retriever."""

_LISTS_BY_NAME = ("get", "inner_hits")
"""Objects around lists under names of their owner: Weaviate's classes, Elasticsearch's parts of a hit."""

_ALL_LISTS = (*_LISTS_BY_NAME, *_LISTS, "groups", "children")
"""All names of lists, with those that mean one only further inside."""

_FIELDS = {
    **dict.fromkeys(("ids", "id", "_id", "id_", "uuid", "passage_id", "element_id", "node_id", "chunk_id"), "chunk_id"),
    **dict.fromkeys(("docid", "doc_id", "ref_doc_id", "file_id", "document_id"), "document_id"),
    **dict.fromkeys(
        (
            "score",
            "_score",
            "certainty",
            "similarity",
            "cosine_similarity",
            "similarity_score",
            "rerank_score",
            "reranker_score",
            "@search_score",
            "@search_reranker_score",
            "document_score",
            "relevance",
            "relevance_score",
        ),
        "relevance_score",
    ),
}
"""Names of the other fields of a source; a name further on wins."""

_METADATA = ("meta", "metadatas", "extra_info", "attributes", "document_metadata", "metadata")
"""Names of a source's metadata; a name further on wins."""

_PLUMBING = frozenset({
    "embedding", "sparse_embedding", "embeddings", "vector", "blob", "dataframe", "relationships", "lc",
    "excluded_embed_metadata_keys", "excluded_llm_metadata_keys", "metadata_template", "metadata_seperator",
    "metadata_separator", "text_template", "class_name",
})  # fmt: skip
"""Keys by which frameworks serve themselves: no fact about a source."""

_TITLES = (
    "document_title",
    "doc_title",
    "page_title",
    "page_name",
    "wikipedia_title",
    "document_name",
    "doc_name",
    "document_keyword",
    "doc",
    "file_name",
    "filename",
    "source_display_name",
    "source",
    "file_path",
    "path",
    "uri",
    "source_uri",
    "document_uri",
    "url",
    "source_url",
    "link",
)
_ABOUT = {*SHOWN_METADATA, *_TITLES, *_FIELDS}
"""Names of texts that are facts about a source."""

_PAGES = ("page_label", "page", "page_number", "page_no", "page_num", "pages", "page_range")
"""Names of the page; the printed one before one that may be counted from 0."""

_INNER = frozenset({"page_label", "page_number", "page_no", "filename", "file_name", "uri"})
"""Those that mean a source wherever they stand in its metadata."""

_NOTHING = frozenset({"nan", "none", "null", "<na>", "nat"})
"""What programs print for a value that is missing, in small letters."""

_ADDRESS = re.compile(r"\s*https?://\S+\s*")
_PATH = re.compile(r"(?:[A-Za-z]:)?[^\s:]*[/\\][^/\\]+")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,20})?")
_PAGE = re.compile(r".+_(?=page_(?:label|number|no|num)$)")
"""What stands before a name of the page: ``evidence_page_num``."""
_FLOAT_PAGE = re.compile(r"\d+\.0")

_CONTRACT = frozenset(SourceContext.model_fields)
_READ = _CONTRACT | {*TEXTS, *_TEXT_LISTS, *_WRAPPERS, *_ALL_LISTS, *_FIELDS, *_METADATA, *_PLUMBING}
"""The names that are read here."""

_OWN = {"title", *_FIELDS, *_WRAPPERS, *_METADATA}
"""Names of what a source has of its own, and a part of one has not."""

_PLAIN = _CONTRACT - {"metadata"}


def read_sources(value: Any) -> list[dict[str, Any]]:
    """The sources in a value, each in the form of the contract.

    Raises: InputError for what is no source, or an object without a text, naming its place and keys.
    """
    # What is over the limit is refused without a look at each.
    each = [*islice(_each(value), MAX_SOURCES + 1)]
    sources = [
        _source(source, number) if isinstance(source, dict) else _text(source, number)
        for number, source in enumerate(each)
    ]
    if each and not any(sources):
        raise _no_text(each[0], 0)
    return [source or {"content": ""} for source in sources]


def is_list_of_sources(name: str, value: Any) -> bool:
    """Tells the list of a retriever's answer, by its name and because each of its objects has a text."""
    if name not in _LISTS or not isinstance(value, list | dict):
        return False
    try:
        return all(isinstance(each, dict) for each in _each(value)) and any(
            each["content"] for each in read_sources(value)
        )
    except InputError:
        return False


def _text(value: Any, number: int) -> dict[str, Any]:
    if not isinstance(value, str):
        raise InputError("must be a text, or an object", field=f"context.{number}")
    return {"content": "" if _is_nothing(value) else value}


def _is_nothing(value: Any) -> bool:
    """Tells a print of nothing, and an address in the place of the text that it leads to."""
    # All of a short text, and more of a long one than any of the prints has.
    return isinstance(value, str) and (value[:6].lower() in _NOTHING or _ADDRESS.fullmatch(value) is not None)


def text_of(value: Any) -> str | None:
    """The text in a value: itself, its parts or sentences together, or that of an object with one; None: it has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return next((text for name in TEXTS if (text := text_of(value.get(name))) is not None), None)
    if isinstance(value, list | tuple) and value:
        parts = [text_of(each) for each in value]
        if None not in parts:
            # Sentences of some sets begin with the blank before them.
            return " ".join(part.strip() for part in parts if part)
    return None


def _each(value: Any) -> Iterator[Any]:
    """The sources one by one, in the shapes that they have."""
    value = structure(value)
    if isinstance(value, dict) and value:
        yield from table_rows(value) or _inside(value)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _element(each)
    elif value is not None:
        yield "" if value == {} else value


def table_rows(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a table as pandas writes it, in columns by index or apart from their names; none of any other object."""
    match value:
        case {"columns": list() as names, "data": list() as rows}:
            return [dict(zip(names, cells, strict=False)) for cells in rows if isinstance(cells, list)]
    if all(isinstance(each, dict) and each and all(map(str.isdigit, each)) for each in value.values()):
        return [{key: each.get(index) for key, each in value.items()} for index in next(iter(value.values()), ())]
    return []


def _element(value: Any) -> Iterator[Any]:
    """The sources in an element of a list."""
    match value:
        case [str() as title, ([] | [str(), *_]) as sentences, *_]:
            yield {"title": title, "content": text_of(sentences)}
        case [str() as text, bool() | int() | float() as score]:
            yield {"content": text, "score": score}
        case [dict() as document, bool() | int() | float() as score]:
            yield {**document, "score": score}
        case [str() as title, str() | int() as sentence, str() as text] if str(sentence).isdecimal():
            yield {"title": title, "content": text}
        case list() | tuple() | dict():
            yield from _each(value)
        case _:
            yield "" if value is None else value


def _inside(value: Mapping[str, Any]) -> Iterator[Any]:
    """The sources of an object: rows of its columns, those of the list that it wraps, of its members, or itself."""
    value = _spelled(value)
    rows = _rows(value)
    if rows is None and not any(name in value for name in TEXTS):
        rows = _wrapped(value)
    if rows is not None:
        yield from rows
    elif value and not value.keys() & _READ and _is_by_id(value):
        for key, each in value.items():
            yield {"chunk_id": key, **({"content": each} if isinstance(each, str) else each)}
    else:
        yield value


def _is_by_id(value: Mapping[str, Any]) -> bool:
    """Tells an object of sources by their ids."""
    return all(isinstance(each, dict) for each in value.values()) or all(
        isinstance(each, str) and (re.search(r"\d", key) or (len(value) > 1 and reads_like_a_text(each)))
        for key, each in value.items()
    )


def _rows(value: Mapping[str, Any]) -> Iterable[Any] | None:
    """The sources of an object with a list of texts, each with its facts from the lists beside; None for any other."""
    names = (*_TEXT_LISTS, *TEXTS, *filter(_names_text, value))
    texts = next((name for name in names if isinstance(value.get(name), list)), None)
    if texts is None:
        return None
    lists = {key: each for key, each in value.items() if isinstance(each, list)}
    if all(len(each) == 1 and isinstance(each[0], list) for each in lists.values()) and texts != "sentences":
        # The answer to one of several queries.
        lists = {key: each[0] for key, each in lists.items()}
    contents = lists.pop(texts)
    rows = {key: each for key, each in lists.items() if len(each) == len(contents)}
    if (texts in _ONE_TEXT and not rows) or not all(map(_may_be_row, contents)):
        return None
    shared = {key: each for key, each in value.items() if key not in lists and key != texts}
    return [
        {
            **shared,
            **{key: each[number] for key, each in rows.items()},
            **(content if isinstance(content, dict) else {"content": content}),
        }
        for number, content in enumerate(contents)
    ]


def _may_be_row(value: Any) -> bool:
    """Tells a source in a list from a part of one, which is an object without anything of its own."""
    return bool(value.keys() & _OWN) if isinstance(value, dict) else isinstance(value, str | list) or value is None


def _wrapped(value: Mapping[str, Any]) -> Iterable[Any] | None:
    """The sources in the list that an object wraps; None where it wraps none."""
    for name in _ALL_LISTS:
        inner = value.get(name)
        if name in _LISTS_BY_NAME and isinstance(inner, dict):
            outer = _unwrapped({key: each for key, each in value.items() if key != name})
            return ({**outer, **each} if isinstance(each, dict) else each for each in _each([*inner.values()]))
        if isinstance(inner, list) or (isinstance(inner, dict) and any(plain(key) in _ALL_LISTS for key in inner)):
            return _each(inner)
    return None


def _spelled(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object with the names that are read here in their usual spelling: ``pageContent``, ``Text``."""
    if value.keys() <= _READ:
        return value
    forms = {key: form for key in value if (form := plain(key)) in _READ and form not in value}
    return {forms.get(key, key): each for key, each in value.items()} if forms else value


def _source(value: dict[str, Any], number: int) -> dict[str, Any]:
    """An object with a text in the form of the contract; empty for one that has but facts."""
    content = value.get("content")
    if value.keys() <= _PLAIN and isinstance(content, str) and not _is_nothing(content) and _ids_are_texts(value):
        return value
    value = _unwrapped(value)
    abouts = [value[key] for key in _METADATA if isinstance(value.get(key), dict)]
    name = _text_name(value)
    inner = (
        each
        for key, each in value.items()
        if isinstance(each, dict) and _text_name(each) is not None and not is_of_dialogue(key)
    )
    if name is None and (about := next(inner, None)) is not None:
        # Stores that know only an id, a score and metadata have the text there.
        value = _unwrapped({**{key: each for key, each in value.items() if each is not about}, **about})
        name = _text_name(value)
    if name is None:
        texts = texts_in({key: each for key, each in value.items() if not isinstance(each, list)})
        if not _ABOUT.issuperset(plain(key) for key, _ in texts):
            raise _no_text(value, number)
        return {}
    text = "" if _is_nothing(value[name]) else text_of(value[name])
    fields = {"content": text if text is not None else "" if value[name] in (None, [], {}) else value[name]}
    fields |= {field: value[key] for key, field in _FIELDS.items() if isinstance(value.get(key), str | int | float)}
    metadata: dict[str, Any] = {}
    for key, each in value.items():
        if key in _CONTRACT and key not in _FIELDS and not isinstance(each, dict):
            if each not in ("", []):
                fields.setdefault(key, each)
        elif key not in _FIELDS and key not in _METADATA and each is not None:
            metadata[key] = each
    for about in abouts:
        metadata |= about
    metadata = {key: each for key, each in metadata.items() if key not in _PLUMBING and key != name}
    _write_plainly(fields)
    place(metadata)
    return {**fields, "metadata": metadata} if metadata else fields


def _no_text(value: Mapping[str, Any], number: int) -> InputError:
    names = [(len(text), name) for name, text in texts_in(value) if not is_of_dialogue(name) and text]
    option = quote(f"sources.content={max(names)[1]}") if names else ""
    return InputError(
        f"is missing: none of the keys {', '.join(map(repr, value))} is known as the text of a source; call it 'content'"
        + (option and f", or for a file say which it is: --map {option}"),
        field=f"context.{number}.content",
    )


def _text_name(value: Mapping[str, Any]) -> str | None:
    """The name of the text of an object; of several one that is not empty."""
    names = [
        name for name in TEXTS if name in value and (name == "content" or not isinstance(value[name], int | float))
    ]
    if not names:
        names = [name for name, each in value.items() if isinstance(each, str) and _names_text(name)]
    return next((name for name in names if text_of(value[name])), names[0] if names else None)


def _names_text(name: str) -> bool:
    parts = plain(name).split("_")
    return not _ENDS_OF_TEXTS.isdisjoint({parts[0], parts[-1]}) and parts[-1] not in _FACTS


def _unwrapped(value: Mapping[str, Any]) -> dict[str, Any]:
    value = dict(_spelled(value))
    for name in (*_WRAPPERS, *TEXTS):
        inner = structure(value.get(name)) if name == _PRINTED else value.get(name)
        if name == "fields" and isinstance(inner, dict):
            inner = {key: _single(each) for key, each in inner.items()}
        if isinstance(inner, dict) and (name in _WRAPPERS or text_of(inner) is not None):
            rest = {
                key: each
                for key, each in value.items()
                if key != name and not (name == "kwargs" and key in {"id", "type"})
            }
            return _unwrapped({**rest, **inner})
    return value


def _single(value: Any) -> Any:
    """The one value of a list, as Elasticsearch has a list for each."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _ids_are_texts(value: Mapping[str, Any]) -> bool:
    return all(isinstance(value.get(name, ""), str) for name in ("chunk_id", "document_id")) and not isinstance(
        value.get("relevance_score"), bool | str
    )


def _write_plainly(fields: dict[str, Any]) -> None:
    """Makes texts of ids that are numbers; a yes or no is no score."""
    for name in ("chunk_id", "document_id"):
        if name in fields:
            fields[name] = as_id(fields[name])
    score = fields.get("relevance_score")
    if isinstance(score, bool) or score == "" or _is_nothing(score):
        del fields["relevance_score"]
    elif isinstance(score, str) and _NUMBER.fullmatch(score):
        fields["relevance_score"] = float(score)


def as_id(value: Any) -> Any:
    """A number as the text of an id, without the point that a table's empty cells give to whole numbers; MongoDB wraps ids."""
    if isinstance(value, dict):
        return value.get("$oid", value)
    return str(whole(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def whole(value: Any) -> Any:
    """A whole number that was made one with a point, as it was.

    >>> whole(17.0), whole("17.0"), whole(1.5), whole("iv")
    (17, 17, 1.5, 'iv')
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value[:-2]) if isinstance(value, str) and _FLOAT_PAGE.fullmatch(value) else value


def place(metadata: dict[str, Any]) -> None:
    """Adds the title and the page of a source where it has them under other names, and writes pages as people do."""
    forms = {_PAGE.sub("", plain(key)): each for key, each in metadata.items()}
    metadata |= {name: forms[name] for name in SHOWN_METADATA if name in forms and name not in metadata}
    inner = _inner(metadata)
    if not any(metadata.get(name) for name in ("title", "source_path", "product_name")):
        titles = (each for name in _TITLES for each in (forms.get(name), *inner.get(name, ())))
        title = next((each for each in titles if isinstance(each, str) and each.strip()), None)
        if title is not None:
            metadata["title"] = re.split(r"[/\\]", title)[-1] if _PATH.fullmatch(title) else title
    pages = (each for name in _PAGES for each in (forms.get(name), dict(enumerate(inner.get(name, ())))))
    page = next((page for each in pages if (page := _page(each)) not in (None, "")), None)
    if page is not None:
        metadata["page"] = page
    elif "page" in metadata:
        del metadata["page"]
    for name in ("article", "section"):
        if name in metadata:
            metadata[name] = whole(metadata[name])


def _inner(metadata: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The pages and names of files further inside of metadata, where parsers of documents have them."""
    places: dict[str, list[Any]] = {}
    remaining = deque(each for each in metadata.values() if isinstance(each, dict | list))
    while remaining:
        each = remaining.popleft()
        if isinstance(each, dict):
            for key, value in each.items():
                if (form := plain(key)) in _INNER:
                    places.setdefault(form, []).append(value)
            each = [*each.values()]
        remaining += [value for value in each if isinstance(value, dict | list)]
    return places


def _page(value: Any) -> Any:
    """A page as a number, a text, or several; None for what is none."""
    match value:
        case bool() | None:
            return None
        case str() if _is_nothing(value):
            return None
        case dict():
            return _joined(value.values())
        case list() | tuple():
            return [page for each in value if (page := _page(each)) is not None] or None
    return whole(value)


def _joined(parts: Iterable[Any]) -> Any:
    pages = list(dict.fromkeys(page for each in parts if isinstance(page := _page(each), str | int)))
    return pages[0] if len(pages) == 1 else "-".join(map(str, pages)) or None
