"""Makes the active content of an answer harmless: HTML, links that run scripts, images that load from elsewhere.

Pages show answers, and sources or a model can put anything into one. Tags go and their words stay; scripts go with their
content; a link with an unknown scheme becomes its text. Code stays as it is, because pages show it and run none of it. A
Markdown parser reads the result back and has the last word: where it still finds HTML or such a link, code is changed, too.
"""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt

from schemas.answer import CanonicalAnswer
from tasks.answers.rendered import Edit, code_spans
from tasks.answers.stretches import Stretches
from tasks.text.word_search import WordSearch

REMOVED = "HTML, script links or images in the answer were removed or made harmless"

_SIGN = re.compile(r"<[A-Za-z/!?]|\]\(|!\[|\]:|javascript|vbscript|data:|&#|\bon\w+\s*=", re.IGNORECASE)
"""The first sign of active content; most answers have none."""
_MAY_BE_SIGN = WordSearch("<", "](", "![", "]:", "&#", patterns=("(?i)javascript|vbscript|data:", r"(?i)on\w+\s*="))
_ELEMENTS = frozenset({
    "a", "abbr", "address", "applet", "area", "article", "aside", "audio", "b", "base", "basefont", "bdi", "bdo",
    "bgsound", "big", "blink", "blockquote", "body", "br", "button", "canvas", "caption", "center", "cite", "code",
    "col", "colgroup", "data", "datalist", "dd", "del", "details", "dfn", "dialog", "dir", "div", "dl", "dt", "em",
    "embed", "fieldset", "figcaption", "figure", "font", "footer", "form", "frame", "frameset", "h1", "h2", "h3", "h4",
    "h5", "h6", "head", "header", "hgroup", "hr", "html", "i", "iframe", "image", "img", "input", "ins", "isindex",
    "kbd", "keygen", "label", "layer", "legend", "li", "link", "listing", "main", "map", "mark", "marquee", "math",
    "menu", "menuitem", "meta", "meter", "nav", "nobr", "noembed", "noframes", "noscript", "object", "ol", "optgroup",
    "option", "output", "p", "param", "picture", "plaintext", "portal", "pre", "progress", "q", "rb", "rp", "rt", "rtc",
    "ruby", "s", "samp", "script", "search", "section", "select", "slot", "small", "source", "span", "strike", "strong",
    "style", "sub", "summary", "sup", "svg", "table", "tbody", "td", "template", "textarea", "tfoot", "th", "thead",
    "time", "title", "tr", "track", "tt", "u", "ul", "var", "video", "wbr", "xml", "xmp",
})  # fmt: skip
"""Elements of HTML, present and past; another word in angle brackets is the writer's, such as a placeholder."""
_WITH_CONTENT = re.compile(
    r"<(script|style|iframe|object|noembed|noframes|template|svg|math|xml|title)\b[^<>]*>", re.IGNORECASE
)
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][A-Za-z0-9-]*)(?P<rest>(?:[\s/\"'][^<>]*)?)>")
_DECLARATION = re.compile(r"<[!?][^<>]*>")
_UNCLOSED = re.compile(r"<(?P<name>[A-Za-z][A-Za-z0-9-]*)[\s/][^<>\n]*=[^<>\n]*(?=\n|\Z)")
_OPENS_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_AUTOLINK = re.compile(r"<(?:https?://|mailto:)[^\s<>]*>|<[\w.+-]+@[\w.-]+>", re.IGNORECASE)
_OTHER_AUTOLINK = re.compile(r"<[a-z][a-z0-9+.-]{1,31}:[^<>\s]*>", re.IGNORECASE)
_DESTINATION = r"\((?P<target>(?:[^()\n]|\([^()\n]*\))*)\)"
_LINK = re.compile(rf"(?P<image>!?)\[(?P<text>[^\[\]]{{0,300}})\]{_DESTINATION}")
_DEFINITION = re.compile(r"(?m)^ {0,3}\[(?P<label>[^\]\n]+)\]:[ \t]*\n?[ \t]*<?(?P<target>[^\n]*)(?:\n|\Z)")
_REFERENCE = re.compile(r"\[(?P<text>[^\[\]\n]{1,300})\]\[(?P<label>[^\[\]\n]{0,300})\]")
_TERMINAL = ".!?…。！？؟"  # noqa: RUF001 - marks of other scripts
_ONLY_LIST_MARKER = re.compile(r"\s*\d{1,3}\.")
_LONGEST_POINTER = 25
"""Characters of words that only point elsewhere; longer ones may state something and stay."""
_HANDLERS = re.compile(r"\{[^{}\n]*\bon\w+\s*=[^{}\n]*\}", re.IGNORECASE)
_SCRIPT_SCHEME = re.compile(r"(?P<scheme>\b(?:javascript|vbscript|data))(?=:(?!\s|//)\S)", re.IGNORECASE)
_DATA_TYPE = re.compile(r"data:(?:[\w.+-]+/[\w.+-]+)?[;,]", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
_SAFE_SCHEMES = ("http:", "https:", "mailto:", "tel:", "ftp:")
_PASSES = 4
"""Most passes: a removed tag may leave the halves of another one side by side."""


def may_be_active(text: str) -> bool:
    """Tells whether a text has a sign of active content."""
    return _MAY_BE_SIGN(text) and _SIGN.search(text) is not None


def neutralise(answer: CanonicalAnswer) -> tuple[CanonicalAnswer, bool]:
    """The answer with its active content made harmless, and True if anything changed."""
    texts = [segment.text for segment in answer.segments]
    before = texts
    for _ in range(_PASSES):
        text = "".join(texts)
        edits = list(_edits(text, code_spans(text)))
        if not edits:
            break
        texts = _apply(texts, edits)
    text = "".join(texts)
    if is_active(text):
        texts = _apply(texts, list(_last_edits(text)))
    if texts == before:
        return answer, False
    segments = [segment.model_copy(update={"text": text}) for segment, text in zip(answer.segments, texts, strict=True)]
    return answer.model_copy(update={"segments": tuple(segments)}), True


def neutral_plain(text: str) -> list[Edit]:
    """Edits that keep a text without mark-up from being HTML, if a page takes it for HTML: ``<b`` becomes ``< b``."""
    return [
        Edit(match.start(), match.start() + 1, "< ")
        for match in _OPENS_TAG.finditer(text)
        if _is_element(text, match.end())
    ]


def is_active(text: str) -> bool:
    """Tells whether a Markdown parser finds HTML, an image or a link with an unknown scheme in a text."""
    for token in _parser().parse(text):
        if token.type == "html_block":
            return True
        for child in token.children or ():
            if child.type in {"html_inline", "image"}:
                return True
            if child.type == "link_open" and not is_safe(str(child.attrs.get("href", ""))):
                return True
    return False


def is_safe(target: str) -> bool:
    """Tells whether a link leads nowhere but to a page, an address or a place in the same text."""
    plain = re.sub(r"[\x00-\x20\\]", "", html.unescape(target)).lower().lstrip("<")
    return plain.startswith(_SAFE_SCHEMES) or (not _SCHEME.match(plain) and "javascript:" not in plain)


class _Parser(MarkdownIt):
    """A parser that lets every link through, so that none is hidden from the check."""

    def validateLink(self, url: str) -> bool:  # noqa: ARG002, N802 - the library's signature
        return True


@cache
def _parser() -> MarkdownIt:
    return _Parser("commonmark", {"html": True}).enable("table")


# ---- edits ----------------------------------------------------------------------------------------------------------


def _edits(text: str, code: Sequence[tuple[int, int]]) -> Iterator[Edit]:
    """The changes outside of code, in order and without overlap."""
    end = 0
    untouched = Stretches(code)
    for edit in sorted(_all_edits(text), key=lambda edit: (edit.start, -edit.end)):
        if edit.start < end or untouched.hold(edit.start):
            continue
        end = edit.end
        if not edit.text and text[edit.start - 1 : edit.start] == text[end : end + 1] == " ":
            end += 1
        yield Edit(edit.start, end, edit.text)


def _all_edits(text: str) -> Iterator[Edit]:
    yield from _tag_edits(text)
    yield from _link_edits(text)


def _tag_edits(text: str) -> Iterator[Edit]:
    links = {match.start() for match in _AUTOLINK.finditer(text)}
    unsafe = (match for match in _OTHER_AUTOLINK.finditer(text) if not is_safe(match.group()[1:-1]))
    yield from (Edit(*match.span(), "") for match in unsafe)
    yield from (Edit(*span, "") for span in _whole_elements(text))
    yield from (Edit(*match.span(), "") for match in _DECLARATION.finditer(text))
    for match in _TAG.finditer(text):
        if match["name"].lower() in _ELEMENTS or "=" in match["rest"]:
            yield Edit(
                *match.span(), _between(text, match) if match["name"].lower() in {"br", "p", "li", "tr", "div"} else ""
            )
    for match in _UNCLOSED.finditer(text):
        if match["name"].lower() in _ELEMENTS:
            yield Edit(*match.span(), "")
    for match in _OPENS_TAG.finditer(text):
        if match.start() not in links:
            # ``a<b`` is a comparison.
            spaced = " < " if text[match.start() - 1 : match.start()].isalnum() else "< "
            yield Edit(match.start(), match.start() + 1, spaced)


def _whole_elements(text: str) -> Iterator[tuple[int, int]]:
    """The elements that go with their content, and comments; each end is looked for once."""
    lowered = text.lower()
    position = 0
    while (start := text.find("<!--", position)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        yield start, end + 3
        position = end + 3
    endless: set[str] = set()
    position = 0
    for match in _WITH_CONTENT.finditer(text):
        name = match.group(1).lower()
        if match.start() < position or name in endless:
            continue
        closing = lowered.find(f"</{name}", match.end())
        if closing < 0:
            endless.add(name)
            continue
        position = (text.find(">", closing) + 1) or len(text)
        yield match.start(), position


def _link_edits(text: str) -> Iterator[Edit]:
    for match in _LINK.finditer(text):
        if match["image"] or not is_safe(match["target"]):
            yield _without_link(text, match)
    removed = set()
    for match in _DEFINITION.finditer(text):
        if not is_safe(match["target"]):
            removed.add(match["label"].casefold())
            yield Edit(*match.span(), "")
    for match in _REFERENCE.finditer(text) if removed else ():
        if (match["label"] or match["text"]).casefold() in removed:
            yield Edit(*match.span(), match["text"])
    for match in _HANDLERS.finditer(text):
        yield Edit(*match.span(), "")
    for match in _SCRIPT_SCHEME.finditer(text):
        if match["scheme"].lower() != "data" or _DATA_TYPE.match(text, match.start()):
            yield Edit(match.end(), match.end() + 1, " :")


_LONGEST_LINE = 200
"""Characters of a line before a link or a tag that are looked at."""
_AFTER_SPACES = re.compile(r"[ \t]*+(.)", re.DOTALL)


def _line_before(text: str, position: int) -> str:
    """The last characters of the line before a position."""
    start = max(0, position - _LONGEST_LINE)
    return text[max(start, text.rfind("\n", start, position) + 1) : position]


def _without_link(text: str, match: re.Match[str]) -> Edit:
    """A link or an image becomes its words; a short one that is no part of a sentence, such as "Read more", goes whole."""
    line = _line_before(text, match.start()).rstrip()
    after = _AFTER_SPACES.match(text, match.end())
    following = after[1] if after else ""
    begins = not line or (line[-1] in _TERMINAL and not _ONLY_LIST_MARKER.fullmatch(line))
    ends = following in {"", "\n"} or following.isupper()
    short = len(match["text"]) <= _LONGEST_POINTER and not any(map(str.isdigit, match["text"]))
    return Edit(*match.span(), "" if begins and ends and short else match["text"])


def _between(text: str, match: re.Match[str]) -> str:
    """White space in place of a tag that ends a line; a cell of a table stays on its line."""
    line = _line_before(text, match.start())
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    if not before or not after or before.isspace() or after.isspace():
        return ""
    return " " if line.lstrip().startswith("|") or match["name"].lower() != "br" else "\n"


def _last_edits(text: str) -> Iterator[Edit]:
    """Changes in code as well, for a text that hides HTML between backticks which are none of code."""
    links = {match.start() for match in _AUTOLINK.finditer(text)}
    edits = [Edit(m.start(), m.start() + 1, "< ") for m in _OPENS_TAG.finditer(text) if m.start() not in links]
    edits += [Edit(*match.span(), " ".join(match.group())) for match in re.finditer(r"\]\(|\]:|!\[", text)]
    yield from sorted(edits, key=lambda edit: edit.start)


def _is_element(text: str, position: int) -> bool:
    name = re.compile(r"/?([A-Za-z][A-Za-z0-9-]*)|[!?]").match(text, position)
    return name is not None and (name.group(1) is None or name.group(1).lower() in _ELEMENTS)


def _apply(texts: Sequence[str], edits: Iterable[Edit]) -> list[str]:
    """The texts of the segments with edits of their joined text; a change over a boundary is written into the first."""
    changes = list(edits)
    result = []
    start = position = 0
    for text in texts:
        end = start + len(text)
        parts = []
        place = start
        while position < len(changes) and changes[position].start < end:
            edit = changes[position]
            if edit.start >= start:
                parts.append(text[place - start : edit.start - start] + edit.text)
            place = min(end, edit.end)
            if edit.end > end:
                break
            position += 1
        parts.append(text[place - start :])
        result.append("".join(parts))
        start = end
    return result
