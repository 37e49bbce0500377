"""The wording of English."""

from tasks.text.wording.table import Wording

_SOURCES = r"(?:sources?|context|documents?|passages?|excerpts?|texts?|materials?|information|articles?)"
_TELLING = (
    r"(?:sa(?:y|id)|mention|stat|contain|provid|specif|answer|address|indicat|includ|giv|describ|discuss|explain|list|tell"
    r"|found|find|detail|clarif|reveal|confirm|cover|availab)\w*"
)

WORDING = Wording(
    code="en",
    denials=(r"\b(?:no|not|none|nothing|cannot|unable|sorry|insufficient)\b", "n't"),
    hedges=(
        rf"\b{_SOURCES}\b[^.]{{0,40}}?\b(?:not|don't|doesn't|didn't|cannot|can't|isn't|aren't)\b[^.]{{0,20}}?\b{_TELLING}",
        rf"\b{_SOURCES}\b[^.]{{0,40}}?\b(?:nothing|no (?:\w+ )?(?:information|answer|details?|mention|evidence))",
        (
            rf"\b(?:not|no|nothing|none)\b[^.]{{0,40}}?\b{_TELLING}[^.]{{0,30}}?\b(?:in|from|by|of)\b"
            rf" (?:the |these |any |this )?(?:\w+ ){{0,2}}{_SOURCES}\b"
        ),
        rf"\bnone of (?:the |these )(?:\w+ ){{0,2}}{_SOURCES} {_TELLING}",
        (
            r"\b(?:i|we)(?:'m| am| are| was| were)?"
            r" (?:not sure|unable|sorry|(?:do not|don't|cannot|can't|could not) (?:know|find|answer|say|tell))\b"
        ),
        r"\b(?:no|not enough|insufficient) (?:relevant )?(?:information|evidence)\b",
        r"\b(?:is|are|was|were) not (?:mentioned|specified|stated|addressed|given)[^,;\w]{0,5}\Z",
    ),
    turns=("but", "however", "although", "though", "nevertheless", "instead"),
    courtesies=(
        "hi",
        "hello",
        "hey",
        "dear",
        "thanks?",
        "thank you",
        "sorry",
        "sure",
        "certainly",
        "of course",
        "great",
        "ok(?:ay)?",
        "wow",
        "you're welcome",
        "good (?:morning|day|evening)",
        "i hope",
        "i'm glad",
        "let me know",
        "feel free",
        "please let",
        "happy to",
        "here (?:is|are) (?:the|a|an|some|what)",
        r"in summary\W*\Z",
        r"yes\W*\Z",
        r"no\W*\Z",
    ),
    next_steps=(
        "please (?:contact|consult|check|refer|ask|provide|share|upload|try|rephrase|clarify|see)",
        (
            "(?:you (?:may|might|could|should)|i (?:recommend|suggest|advise)|it is (?:best|advisable))"
            ".{0,40}(?:contact|consult|check|refer|ask|rephras|provid)"
        ),
        "(?:if|could) you (?:can|could|would|have|provide|share)",
        "(?:for|to get) (?:more|further|accurate|up-to-date) ",
    ),
    strong=(
        "don't have enough information",
        "do not have enough information",
        "not enough information",
        "insufficient information",
        "cannot determine",
        "can't determine",
        "cannot be determined",
        "unclear",
        "i don't know",
        "i do not know",
        "unsure",
        "not sure",
    ),
    moderate=(
        "may depend",
        "might vary",
        "may vary",
        "could be",
        "might be",
        "possibly",
        "perhaps",
        "maybe",
        "seems to",
        "appears to",
        "likely",
        "probably",
        "presumably",
        "i think",
        "it depends",
        "varies",
    ),
    factual=("what", "how much", "how many", "how long", "how old", "when", "where", "who", "which"),
    units=(
        *("dollar", "dollars", "cents", "euro", "euros", "pounds", "usd", "eur", "gbp", "chf", "sgd", "percent"),
        *("per cent", "percentage points", "minute", "minutes", "hour", "hours", "day", "days", "week", "weeks"),
        *("month", "months", "year", "years", "am", "pm", "a.m.", "p.m.", "o'clock"),
    ),
    function_words="""the of and to is are was were what which who whom when where why how much many long does do did can
    could must should may have has a an for from with this that these it its my your our be there between any will
    would i you we they not""",
)
