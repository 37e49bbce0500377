"""The wording of French."""

from tasks.text.wording.table import Wording

_SOURCES = r"(?:sources?|documents?|contexte|textes?|extraits?|passages?|documentation|informations?|articles?|éléments fournis)"
_TELLING = (
    r"(?:mentionn|dis(?:en)?t|dit|indiqu|contien|inclu|fourni|précis|répond|abord|trait|détail|expliqu|trouv|figur"
    r"|donne|spécifi|évoqu|décri|permet)\w*"
)

WORDING = Wording(
    code="fr",
    denials=(r"\b(?:ne|pas|aucune?|rien|désolée?|insuffisante?s?|ignore)\b", r"\bn'"),
    hedges=(
        rf"\b{_SOURCES}\b[^.]{{0,30}}?\b(?:ne |n')[^.]{{0,8}}?\b{_TELLING}[^.]{{0,12}}?\b(?:pas|rien|aucune?|ni)\b",
        (
            rf"\b(?:ne |n')[^.]{{0,30}}?\b(?:pas|rien|aucune?)\b[^.]{{0,40}}?\b(?:dans|par|de|selon) (?:le |la |les |l'|ces |ce |cette )"
            rf"(?:\w+ ){{0,2}}?{_SOURCES}\b"
        ),
        (
            rf"\baucune (?:information|réponse|donnée|indication|précision)\b[^.]{{0,60}}?"
            rf"(?:\b(?:dans|par) (?:le |la |les |l'|ces )(?:\w+ ){{0,2}}?{_SOURCES}\b|\W\Z)"
        ),
        r"\bil n'y a (?:pas (?:assez |suffisamment )?d'|aucune )informations?\b",
        (
            r"\b(?:je ne sais pas|j'ignore|(?:je ne peux|nous ne pouvons|je ne suis|il n'est) pas"
            r" (?:répondre|déterminer|savoir|dire|sûre?|possible de (?:répondre|déterminer|savoir|dire)|en mesure))\b"
        ),
        r"\binformations? insuffisantes?\b",
        r"\b(?:n'est|ne sont|n'a) pas (?:été )?(?:mentionn|précis|indiqu|abord)\w*[^,;\w]{0,5}\Z",
    ),
    turns=("mais", "cependant", "toutefois", "pourtant", "bien que", "en revanche", "néanmoins"),
    courtesies=(
        "bonjour",
        "bonsoir",
        "salut",
        "merci",
        "merci beaucoup",
        r"bien sûr\W*\Z",
        r"certainement\W*\Z",
        "désolée?",
        "j'espère",
        r"oui\W*\Z",
        r"non\W*\Z",
        "cordialement",
        "n'hésitez pas",
        "je suis désolée?",
    ),
    next_steps=(
        "(?:veuillez|merci de) (?:contacter|consulter|vérifier|demander|fournir|reformuler|préciser)",
        "(?:contactez|consultez|adressez-vous|demandez|vérifiez|reformulez)",
        "(?:je vous (?:recommande|conseille|suggère)|il est (?:conseillé|recommandé))",
        "pour (?:plus|obtenir|en savoir) ",
        "si vous (?:pouvez|avez|souhaitez) ",
    ),
    strong=(
        "pas assez d'informations",
        "pas suffisamment d'informations",
        "informations insuffisantes",
        "impossible de déterminer",
        "ne peut pas être déterminé",
        "ne permet pas de déterminer",
        "ne permettent pas de déterminer",
        "pas clair",
        "je ne sais pas",
        "pas sûr",
        "pas certain",
    ),
    moderate=(
        "peut-être",
        "probablement",
        "possiblement",
        "éventuellement",
        "sans doute",
        "semble",
        "semblent",
        "il se peut",
        "il est possible",
        "pourrait",
        "pourraient",
        "cela dépend",
        "dépend",
        "peut varier",
        "peuvent varier",
        "je pense",
        "je crois",
        "apparemment",
    ),
    factual=("quel", "quelle", "quels", "quelles", "combien", "quand", "où", "qui", "qu'est-ce"),
    units=(
        "pour cent",
        "centimes",
        "francs",
        "livres",
        "minute",
        "heure",
        "heures",
        "jour",
        "jours",
        "semaine",
        "semaines",
        "mois",
        "an",
        "ans",
        "année",
        "années",
    ),
    function_words="""le la les l un une des du de d et ou est sont était qui que quel quelle quels quelles combien quand où
    pourquoi comment peut puis pour par avec dans sur au aux se s ce cette ces il elle on je vous nous ne pas a t y en
    faut doit coûte entre quoi""",
    letters="èêçàùûîœæ",
)
