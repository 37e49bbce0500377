"""Chooses the output format of an answer when the caller leaves it open."""
# ruff: noqa: RUF001 - full-width marks are meant

import re
from collections.abc import Iterable

from schemas.generation import GenerationMode, OutputFormat
from schemas.job import JobRequest

_FORMAT_OF_INTENT = {
    "how-to": OutputFormat.STEPS,
    "how_to": OutputFormat.STEPS,
    "howto": OutputFormat.STEPS,
    "procedure": OutputFormat.STEPS,
    "procedural": OutputFormat.STEPS,
    "instructions": OutputFormat.STEPS,
    "steps": OutputFormat.STEPS,
    "list": OutputFormat.BULLETS,
    "enumeration": OutputFormat.BULLETS,
    "comparison": OutputFormat.TABLE,
    "compare": OutputFormat.TABLE,
    "table": OutputFormat.TABLE,
}


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_ASKS_FOR = (
    (
        OutputFormat.TABLE,
        _any(
            r"\b(?:as|in|into) (?:a )?table\b|\btabular\b",
            r"\b(?:als|in einer|in form einer) tabelle\b|\btabellarisch\w*",
            r"\b(?:en|como) (?:una )?tabla\b|\b(?:en|dans un|sous forme de) tableau\b|表格|(?:في|شكل) جدول",
        ),
    ),
    (
        OutputFormat.STEPS,
        _any(
            r"\bstep[- ]by[- ]step\b|\b(?:which|what) steps\b|\bschritt für schritt\b|\bschrittweise\b",
            r"\bpaso a paso\b|\bétape par étape\b|逐步|一步一步|分步|خطوة (?:ب|بـ )?خطوة",
        ),
    ),
    (
        OutputFormat.BULLETS,
        _any(
            r"\bbullet(?:s|ed)?\b|\bas a list\b|\bals (?:aufzählung|liste)\b|\bstichpunkt\w*",
            r"\b(?:en|como) (?:una )?lista\b|\bviñetas\b|\bsous forme de liste\b|\bà puces\b|清单|في قائمة",
        ),
    ),
)
"""Queries that name a format."""

_IS_ANSWERED_BY = (
    (
        OutputFormat.BULLETS,
        _any(
            r"(?:^|[.!?;:,]\s*|\b(?:please|you|to|and)\s+)list\b(?!\s+price)",
            r"\blist (?:all|the|every|each|any)\b",
            r"\b(?:what|which) are all\b|\benumerat\w+|\bname all\b",
            r"\bauflist\w*|\bliste\w* .{0,60}\bauf\b|\bzähl\w* .{0,60}\bauf\b|\bnenne\w* (?:alle|sämtliche)\b",
            r"\benumer[ae]\w*|\blist(?:a|ar|e) (?:tod[oa]s|los|las)\b|\bcuáles son tod[oa]s\b",
            r"\bénumér\w+|\blist(?:e|er|ez) (?:tou\w+|les)\b|\bquel(?:le)?s sont tou(?:te)?s\b",
            r"列出|列举|罗列|有哪些|\b(?:اذكر|سرد|اسرد)\b|ما هي (?:جميع|كل)",
        ),
    ),
    (
        OutputFormat.TABLE,
        _any(
            r"\bcompar(?:e|es|ed|ing|isons?)\b|\bdifferences?\b|\bdiffers?\b|\bversus\b|\bvs\b",
            r"\bvergleich\w*|\bverglichen\b|\bunterschied\w*|\bunterscheide\w*|\bgegenüberstell\w*",
            r"\bcompar(?:a|ar|an|ación|aciones|ado|ada)\b|\bdiferencias?\b",
            r"\bcompar(?:er|ez|aisons?|é|ée|és)\b|\bdifférences?\b",
            r"比较|对比|相比|区别|差异|差别|不同之处|\b(?:و)?قارن\b|مقارنة|\b(?:ال)?(?:فرق|فروق|اختلافات)\b",
        ),
    ),
    (
        OutputFormat.STEPS,
        _any(
            r"\bhow to\b|\bhow (?:do|can|should|must) (?:i|we|you|one)\b|\bsteps\b|\bprocedures?\b",
            # As a verb it has an object; "processor" is no process at all.
            r"\bprocess\b(?!\s+(?:\w+\s+)?(?:data|information|orders?|payments?|it|them|this|these|my|your|our|the)\b)",
            r"\bwie (?:kann|muss|soll|mache|gehe|geht|beantrag\w*|kündig\w*) (?:ich|man|wir)\b"
            r"|\bwie (?!w[eä]rde|hätte|wäre)\w+e ich\b|\bwie geht\b|\bschritte\b|\banleitung\b",
            # The first person of a verb, with or without its object: "cómo lo cancelo".
            r"\bcómo (?:l[oae]s? |me |te )?(?!todo|mucho|poco|otro|est?o\b|eso|cuando|mínimo|máximo)\w{2,}o\b",
            r"\bcómo (?:puedo|puede|se|hacer|debo|hay)\b|\bpasos\b|\bprocedimientos?\b|\bproceso\b",
            r"\bcomment (?:(?:l[ea]s?|me|se|en|y) |[mls]')?(?!votre|notre|autre|entre|contre)\w{2,}(?:er|ir|re)\b",
            r"\bcomment (?:faire|puis-je|peut-on|dois-je|doit-on|obtenir|demander)\b|\bétapes\b|\bprocédures?\b|\bprocessus\b",
            # At the beginning of a question that has no other subject than who asks.
            r"(?:^|[。！？?!，,]\s*)(?:请问)?[我您你]?们?(?:应该|应当|可以|需要|该|要|能)?(?:如何|怎么|怎样)(?![样会是没这那看了算回可定理评影区计]|\s*$|[？?])",
            r"步骤|流程|怎么办|怎样才能|如何(?:办理|申请|操作|进行|使用|设置|提交|取消|更改|安装)",
            r"كيف (?:أنهي|ألغي|أفسخ|أقدم|أتقدم|أطلب|أحصل|أسجل|أغير|أفعل|أعمل|أستخدم|أدفع|أرسل|أعيد|أجدد|أستعيد|أتصل|أضبط|أشغل|أشتري|أصل)\b",
            r"كيف (?:يمكن|أقوم|نقوم)|كيفية|\b(?:ال)?خطوات\b|\b(?:ال)?إجراءات\b",
        ),
    ),
)
"""Queries that imply a format, in English, German, Spanish, French, Chinese and Arabic."""


def resolve_format(request: JobRequest) -> OutputFormat:
    """The output format of a job.

    For ``auto`` the first of these decides: the intent, a format that the query names, the mode, the kind of question
    (a list, a comparison, instructions). With ``aggregate``, running text becomes a list of points.
    """
    requested = request.config.output_format
    if request.aggregate and requested in {OutputFormat.AUTO, OutputFormat.MARKDOWN, OutputFormat.PLAIN}:
        return OutputFormat.BULLETS
    if requested is not OutputFormat.AUTO:
        return requested
    if request.intent and (by_intent := _FORMAT_OF_INTENT.get(request.intent.strip().lower())):
        return by_intent
    return _first_match(request.query, _ASKS_FOR) or _implied_format(request)


def _implied_format(request: JobRequest) -> OutputFormat:
    if request.config.mode is GenerationMode.COMPARISON:
        return OutputFormat.TABLE
    return _first_match(request.query, _IS_ANSWERED_BY) or OutputFormat.MARKDOWN


def _first_match(query: str, patterns: Iterable[tuple[OutputFormat, re.Pattern[str]]]) -> OutputFormat | None:
    return next((output_format for output_format, pattern in patterns if pattern.search(query)), None)
