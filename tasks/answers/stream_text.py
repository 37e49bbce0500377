"""Turns the pieces of a model's reply into the text that readers of its stream see, while it comes.

Readers see the numbers of the result: a source counts from 1 in the order of its first citation. They see no thoughts, no
JSON, no active content, and no numbers of sources that do not exist. What a piece leaves open (a bracket, a tag, a thought) is
withheld until it is closed, so the text needs no correction later.
"""
# ruff: noqa: RUF001 - full-width characters are meant

import re
from collections.abc import Callable, Sequence

from schemas.answer import CanonicalAnswer, Segment
from schemas.generation import AnswerProtocol
from tasks.answers.active_content import may_be_active, neutralise
from tasks.answers.json_reply import is_json_reply, parse_segments, plain_string, whole_segments
from tasks.answers.markers import find_markers, own_brackets
from tasks.answers.rendered import fenced_blocks
from tasks.answers.thoughts import OWN_KEY, may_hold_thoughts, thought_start, without_thoughts

_NONE = re.compile(r"\s*\[none\][:.]?\s*", re.IGNORECASE)
_MAY_BE_JSON = re.compile(r"\s*(?:`{0,3}|```\w{0,8}\s*|(?:```\w{0,8}\s*)?[\[{]\W{0,8}\w{0,12}[\"']?\s*)\Z")
_LEADS = ("here is", "here are", "here's", "here’s", "sure", "certainly", "of course", "ok", "below is", "hier ist", "hier sind",
          "gerne", "natürlich", "voici", "bien sûr", "aquí", "claro", "por supuesto", "以下", "这是", "好的", "إليك", "بالتأكيد")  # fmt: skip
"""Words that open an introduction of an answer, of which readers see nothing until what follows is known."""
_LEAD = re.compile(rf"\s*(?:{'|'.join(_LEADS)})[^\n:：{{\[`]{{0,120}}(?:[\n:：]\s*)?", re.IGNORECASE)
_BEGINNINGS = frozenset(lead[:length] for lead in _LEADS for length in range(1, len(lead) + 1))
_CHAT_TOKEN = re.compile(r"(?:<\|(?:start|channel)\|>\w{0,12}|<\|?[\w|]{0,20})\Z")
_SIGNS = frozenset("<[(!`{¹²³⁰⁴⁵⁶⁷⁸⁹】&◁")
_OPEN = re.compile(
    r"(?s:<(?:script|style|iframe|svg|math|template|object)\b(?:(?!</).)*\Z)"
    r"|<[^<>\n]{0,300}\Z|!?\[[^\[\]\n]{0,300}\]?\Z|!?\[[^\[\]\n]{0,300}\]\([^\n]{0,300}\Z|\([^()\n]{0,40}\Z|!\Z"
    r"|(?m:^) {0,3}\[[^\]\n]{1,80}\]:[^\n]*\Z|\{[^{}\n]{0,200}\Z|\{\s*[\"'][^\n]{0,40}\Z|[¹²³⁰⁴-⁹,]+\Z|【[^】\n]{0,40}\Z|&[#\w]{0,10}\Z",
    re.IGNORECASE,
)
_LONGEST_OPEN = 600
_BEFORE = 200
"""Characters before a piece that are looked at for words that a source has before a bracket."""
_AFTER_BRACKET = 48
"""Characters after a bracket at the start of a line that tell whether a source has the same words there."""


class StreamText:
    """The text of one attempt's stream under construction.

    Args:
        emit: gets the text for readers, piece by piece.
        protocol: of the reply.
        sources: the contents of the sources in the prompt, by number - 1.
        show_markers: if False, no marker is shown.
        allow_html: active content stays.
    """

    def __init__(
        self,
        emit: Callable[[str], None],
        protocol: AnswerProtocol,
        sources: Sequence[str],
        *,
        show_markers: bool = True,
        allow_html: bool = False,
    ) -> None:
        self._emit = emit
        self._protocol = protocol
        self._sources = sources
        self._show_markers = show_markers
        self._allow_html = allow_html
        self._raw = ""
        self._done = 0
        """Characters of the reply without thoughts that readers have, or that are omitted."""
        self._before = ""
        self._ranks: dict[int, int] = {}
        self._began = False
        self._json = False
        self._segments = 0

    def feed(self, piece: str) -> None:
        """Takes the next piece of the reply."""
        self._raw += piece
        if self._began and not self._json and self._done == len(self._raw) - len(piece) and not _SIGNS & set(piece):
            # Nothing was open, and nothing is.
            self._done += len(piece)
            self._before = self._raw
            self._emit(piece)
            return
        self._advance(closed=False)

    def close(self) -> None:
        """Shows what is withheld; the reply has ended."""
        self._advance(closed=True)

    # ---- the text so far ----

    def _advance(self, *, closed: bool) -> None:
        text = self._reply(closed=closed)
        if not self._began and not self._begin(text, closed=closed):
            return
        if not self._json and (answer := OWN_KEY.search(text, self._done)):
            # The answer's object follows some prose, which the result omits, too.
            self._json, self._done = True, answer.start()
        if self._json:
            self._show_segments(text, closed=closed)
            return
        if not text.startswith(self._before):
            # A thought ended that had no beginning: readers have seen it, and the answer begins now.
            self._emit("\n\n")
            self._done = 0
        end = len(text) if closed else self._settled(text)
        if end > self._done:
            visible = self._visible(text, end)
            self._before = text[: self._done]
            if visible:
                self._emit(visible)

    def _reply(self, *, closed: bool) -> str:
        """The reply so far without thoughts and tokens of the chat template."""
        text = self._raw
        if not closed and (token := _CHAT_TOKEN.search(text, max(0, len(text) - 40))):
            text = text[: token.start()]
        if may_hold_thoughts(text):
            if (opening := thought_start(text)) is not None and not closed:
                text = text[:opening]
            text = without_thoughts(text)
        is_one_value = closed and not self._began and self._protocol is AnswerProtocol.SEGMENTS
        return plain_string(text) if is_one_value else text

    def _begin(self, text: str, *, closed: bool) -> bool:
        """Tells whether the beginning is enough to know the form of the reply."""
        if not text.strip():
            return False
        self._json = is_json_reply(text)
        if not self._json and not closed and self._may_be_before_json(text):
            return False
        if not self._json and (match := _NONE.match(text)):
            self._done = match.end()
        self._began = self._json or closed or not text.lstrip().lower().startswith("[non")
        return True

    def _may_be_before_json(self, text: str) -> bool:
        """Tells whether JSON may begin here, or after an introduction ("Here is the answer:") that the result omits."""
        if self._protocol is AnswerProtocol.SEGMENTS or text.strip().lower() in _BEGINNINGS:
            return True
        lead = _LEAD.match(text)
        rest = text[lead.end() :] if lead else text
        return not rest or _MAY_BE_JSON.match(rest) is not None or not text[: self._settled(text)].strip()

    def _settled(self, text: str) -> int:
        """The end of the text that no later piece changes."""
        start = max(self._done, len(text) - _LONGEST_OPEN)
        match = _OPEN.search(text, start)
        end = min(match.start() if match else len(text), _open_code(text, start))
        for marker in find_markers(text[start:]):
            line = text[max(0, text.rfind("\n", 0, start + marker.start) + 1) : start + marker.start]
            if not line.strip() and len(text) - start - marker.end < _AFTER_BRACKET:
                return min(end, start + marker.start)
        return end

    def _visible(self, text: str, end: int) -> str:
        """The text from the last place to ``end`` as readers see it."""
        # Code makes a bracket none, so with code the whole text is looked at.
        base = 0 if "`" in text or "~~~" in text else max(0, self._done - _BEFORE)
        window = text[base:]
        markers = find_markers(window[: end - base])
        copied = own_brackets(window, markers, self._sources) if markers and self._sources else set()
        parts = []
        position = self._done
        for marker in markers:
            if base + marker.start < self._done:
                continue
            parts.append(text[position : base + marker.start])
            numbers = [] if marker in copied else [n for n in marker.numbers if 1 <= n <= len(self._sources)]
            if self._protocol is AnswerProtocol.NATIVE or not self._show_markers:
                numbers = []
            if numbers:
                parts.append("".join(f"[{self._rank(number)}]" for number in numbers))
            elif parts[-1].endswith(" "):
                parts[-1] = parts[-1][:-1]
            position = base + marker.end
        parts.append(text[position:end])
        start, self._done = self._done, end
        visible = "".join(parts)
        if self._allow_html or any(block.start <= start < block.end for block in fenced_blocks(text)):
            return visible
        before = self._before[-1:]
        return _neutral(before + visible).removeprefix(before)

    def _rank(self, number: int) -> int:
        return self._ranks.setdefault(number, len(self._ranks) + 1)

    # ---- JSON ----

    def _show_segments(self, text: str, *, closed: bool) -> None:
        """Shows the segments that are whole; at the end also what can be read of the rest."""
        if closed:
            reply = parse_segments(text)
            segments = list(reply.answer.segments) if reply else []
        elif "}" in text[self._done :]:
            segments = whole_segments(text)
            self._done = len(text)
        else:
            return
        for segment in segments[self._segments :]:
            # Joined, a segment begins with what stands between it and the one before.
            self._show_segment(segment)
        self._segments = max(self._segments, len(segments))

    def _show_segment(self, segment: Segment) -> None:
        inside = find_markers(segment.text)
        copied = own_brackets(segment.text, inside, self._sources) if inside else set()
        text, position, cited = "", 0, dict.fromkeys(citation.source for citation in segment.citations)
        for marker in inside:
            text += segment.text[position : marker.start].rstrip(" ")
            position = marker.end
            cited |= dict.fromkeys(() if marker in copied else marker.numbers)
        text += segment.text[position:]
        if not self._allow_html:
            text = _neutral(text)
        numbers = [number for number in cited if 1 <= number <= len(self._sources)] if self._show_markers else []
        markers = "".join(f"[{self._rank(number)}]" for number in numbers)
        self._emit(f"{text}{' ' if markers else ''}{markers}")


def _open_code(text: str, start: int) -> int:
    """The start of code in the last line that is open, or may be: the next character tells whether it goes on."""
    line = max(start, text.rfind("\n") + 1)
    runs = [match.start() for match in re.finditer(r"`+", text[line:])]
    if len(runs) % 2:
        return line + runs[-1]
    return line + runs[-2] if runs and text.endswith("`") else len(text)


def _neutral(text: str) -> str:
    if not may_be_active(text):
        return text
    answer, _ = neutralise(CanonicalAnswer(segments=(Segment(text=text),)))
    return answer.segments[0].text
