"""The wording of Spanish."""

from tasks.text.wording.table import Wording

_SOURCES = (
    r"(?:fuentes?|documentos?|contexto|textos?|fragmentos?|pasajes?|materiales?|información|documentación|artículos?"
    r"|extractos?)"
)
_TELLING = (
    r"(?:menciona|mencionan|mencionad|dice|dicen|indica|contiene|contienen|incluye|proporcion|ofrece|especific|respond"
    r"|contesta|aborda|trata|detalla|explica|establece|señala|aparece|encuentr|encontr|figura|aclara|describ|facilita|da\b"
    r"|dan\b|hay)\w*"
)

WORDING = Wording(
    code="es",
    denials=(r"\b(?:no|nada|ningun[oa]?|ningún|tampoco|insuficiente|lamento|desconozco|sin)\b",),
    hedges=(
        rf"\b{_SOURCES}\b[^.]{{0,40}}?\b(?:no|tampoco)\b (?:se |lo |la |me )?[^.]{{0,12}}?\b{_TELLING}",
        (
            rf"\b(?:no|nada|ningun[oa]?|ningún)\b[^.]{{0,60}}?\b(?:en|de|por|según) (?:el |la |los |las |este |estos |esta |estas |ningun[oa] )"
            rf"(?:\w+ ){{0,2}}?{_SOURCES}\b"
        ),
        (
            r"\bno (?:hay|existe|tengo|se dispone de|dispongo de|encuentro|se encontró|he encontrado)"
            r" (?:suficiente |ninguna |más )?(?:información|datos|respuesta)\b"
        ),
        r"\b(?:no (?:lo )?sé|desconozco|no (?:puedo|podemos|es posible|se puede) (?:responder|contestar|determinar|saber|decir))\b",
        r"\binformación insuficiente\b",
        r"\bno se (?:menciona|indica|especifica|dice|aborda)[^,;\w]{0,5}\Z",
    ),
    turns=("pero", "sin embargo", "aunque", "sino", "no obstante", "en cambio"),
    courtesies=(
        "hola",
        "buenos días",
        "buenas (?:tardes|noches)",
        "gracias",
        "muchas gracias",
        r"por supuesto\W*\Z",
        r"claro(?: que sí)?\W*\Z",
        "espero que",
        r"lo siento",
        r"lamento",
        r"sí\W*\Z",
        r"no\W*\Z",
        "un saludo",
        "saludos",
        "no dude en",
        "hágame saber",
    ),
    next_steps=(
        "(?:por favor,? )?(?:consulte|contacte|póngase en contacto|comuníquese|pregunte|revise|verifique|proporcione|reformule)",
        "(?:le |te )?(?:recomiendo|sugiero|aconsejo|recomendamos|sugerimos)",
        "para (?:más|mayor|obtener) ",
        "si (?:puede|desea|tiene|necesita) ",
    ),
    strong=(
        "no hay suficiente información",
        "no tengo suficiente información",
        "información insuficiente",
        "no es posible determinar",
        "no se puede determinar",
        "no puedo determinar",
        "no está claro",
        "no queda claro",
        "poco claro",
        "no lo sé",
        "no sé",
        "no estoy seguro",
        "no estoy segura",
    ),
    moderate=(
        "posiblemente",
        "quizás",
        "quizá",
        "tal vez",
        "probablemente",
        "podría",
        "podrían",
        "parece",
        "parecen",
        "al parecer",
        "depende",
        "puede variar",
        "pueden variar",
        "es posible que",
        "es probable que",
        "creo que",
        "a lo mejor",
    ),
    factual=(
        "qué",
        "que",
        "cuánto",
        "cuánta",
        "cuántos",
        "cuántas",
        "cuanto",
        "cuándo",
        "cuando",
        "dónde",
        "donde",
        "quién",
        "quien",
        "cuál",
        "cuáles",
        "cual",
    ),
    units=(
        "por ciento",
        "dólares",
        "pesos",
        "libras",
        "céntimos",
        "minuto",
        "minutos",
        "hora",
        "horas",
        "día",
        "días",
        "semana",
        "semanas",
        "mes",
        "meses",
        "año",
        "años",
    ),
    function_words="""el la los las un una unos unas de del y o es son fue era qué que cuánto cuánta cuántos cuanto cuándo
    cuando dónde donde quién quien cuál cuáles cual cómo como por para con en se su sus al no hay puedo puede debe tiene
    tengo está lo mi cuesta sobre entre hasta""",
    letters="ñ¿¡áíóú",
)
