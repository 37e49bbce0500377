"""The wording of German."""

from tasks.text.wording.table import Wording

_SOURCES = (
    r"(?:quellen?|dokumente?n?|unterlagen|kontext|textstellen?|texte?n?|auszügen?|materialien|informationen|angaben"
    r"|abschnitte?n?)"
)
_TELLING = (
    r"(?:enthalt|enthält|nenn|genannt|angeb|angegeben|gibt|geben|erwähn|beantwort|sag|hervor|steh|find|beschr(?:ei|ie)b"
    r"|erklär|entnehmen|entnommen|ersichtlich|hergeben|her\b|geht|aussage|auskunft|behandel)\w*"
)

WORDING = Wording(
    code="de",
    denials=(r"\b(?:nicht|nichts|keine?[nrms]?|leider|unzureichend\w*)\b",),
    hedges=(
        rf"\b{_SOURCES}\b[^.]{{0,40}}?\bnicht\b[^.]{{0,20}}?\b{_TELLING}",
        rf"\b{_SOURCES} {_TELLING}[^.]{{0,40}}?\b(?:nicht|nichts)\b",
        rf"\b{_SOURCES}\b[^.]{{0,40}}?\b(?:nichts|keine? (?:\w+ )?(?:angaben?|informationen|antwort|auskunft|hinweise?|aussage))",
        rf"\b{_SOURCES} (?:nennen|nennt|erwähnen|erwähnt|beschreiben|beschreibt|behandeln|behandelt) keine?n?\b",
        (
            rf"\b(?:nicht|nichts|keine?n? (?:\w+ )?(?:angaben?|informationen|antwort|hinweise?))\b[^.]{{0,40}}?"
            rf"\b(?:in|aus|von) (?:den |dem |der |diesen |diesem )?(?:\w+ ){{0,2}}{_SOURCES}\b"
        ),
        r"\b(?:ich|wir) (?:weiß|weiss|wissen|kann|können)[^.]{0,40}?\bnicht\b(?: (?:sagen|beantworten|finden|sicher)\b|\W*\Z)",
        (
            r"\b(?:ich|wir) (?:habe|haben|finde|finden) (?:dazu |hierzu )?(?:keine|nicht genug|nicht genügend)"
            r" (?:angaben|informationen|antwort)\b"
        ),
        r"\bes (?:liegen|gibt|finden sich) (?:dazu |hierzu |darüber |mir )?(?:leider )?keine (?:angaben|informationen|hinweise)\b",
        r"\blässt sich (?:daraus|aus den \w+|anhand der \w+) nicht\b",
        r"\b(?:wird|werden|ist|sind) (?:dort |darin |hier )?nicht (?:erwähnt|genannt|angegeben|beantwortet)[^,;\w]{0,5}\Z",
    ),
    turns=("aber", "jedoch", "obwohl", "sondern", "allerdings", "dagegen", "hingegen"),
    courtesies=(
        "hallo",
        "guten (?:tag|morgen|abend)",
        "danke",
        "vielen dank",
        r"gerne?\W*\Z",
        r"natürlich\W*\Z",
        "ich hoffe",
        r"leider\W*\Z",
        r"ja\W*\Z",
        r"nein\W*\Z",
        "mit freundlichen grüßen",
        "lassen sie (?:es )?mich wissen",
    ),
    next_steps=(
        "bitte (?:wenden|fragen|kontaktieren|prüfen|sehen|geben|stellen|formulieren|teilen)",
        "(?:wenden sie sich|kontaktieren sie|fragen sie)",
        "(?:sie (?:können|sollten)|ich empfehle|es empfiehlt sich).{0,60}(?:wenden|fragen|kontaktieren|prüfen|nachfragen)",
        "für (?:weitere|nähere|genauere) ",
    ),
    strong=(
        "nicht genügend informationen",
        "nicht genug informationen",
        "nicht ausreichend informationen",
        "unzureichende informationen",
        "lässt sich nicht feststellen",
        "lässt sich nicht bestimmen",
        "lässt sich nicht sagen",
        "kann nicht bestimmt werden",
        "unklar",
        "ich weiß nicht",
        "ich weiss nicht",
        "nicht sicher",
        "nicht eindeutig",
    ),
    moderate=(
        "möglicherweise",
        "vielleicht",
        "wahrscheinlich",
        "vermutlich",
        "eventuell",
        "womöglich",
        "wohl",
        "könnte",
        "könnten",
        "scheint",
        "scheinen",
        "kommt darauf an",
        "hängt davon ab",
        "kann variieren",
        "unter umständen",
        "ich denke",
        "ich glaube",
        "anscheinend",
    ),
    factual=(
        "was",
        "wie viel",
        "wieviel",
        "wie viele",
        "wie lange",
        "wie lang",
        "wie hoch",
        "wie alt",
        "wann",
        "wo",
        "wer",
        "welche",
        "welcher",
        "welches",
    ),
    units=(
        "prozent",
        "prozentpunkte",
        "mio",
        "mrd",
        "franken",
        "minute",
        "minuten",
        "stunde",
        "stunden",
        "uhr",
        "tag",
        "tage",
        "tagen",
        "woche",
        "wochen",
        "monat",
        "monate",
        "monaten",
        "jahr",
        "jahre",
        "jahren",
    ),
    function_words="""der die das den dem des ein eine einen einem einer und oder ist sind war waren wird werden wurde was
    wie wer wann wo warum welche welcher welches viel lang lange hoch kann können darf muss man ich sie wir es für von
    mit auf aus bei nach zu zum zur im am nicht auch gibt hat haben braucht brauche kostet zahlt gilt über unter""",
    letters="äöüß",
)
