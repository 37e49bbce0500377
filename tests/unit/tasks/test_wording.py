"""Denials, courtesies, uncertainty and figures in each language."""
# ruff: noqa: RUF001 - other scripts are meant

import pytest

from tasks.text.language import SUPPORTED, language_tables
from tasks.text.statements import is_courtesy, read_statement
from tasks.text.wording import (
    DENIAL,
    denied_part,
    figures,
    hedging,
    is_factual,
    is_next_step,
)

DENIALS = {
    "en": (
        "The sources do not say when the desk opens.",
        "I don’t know.",
        "There is no information about parking in the provided context.",
        "None of the documents mention this.",
        "I cannot answer this question based on the available information.",
        "This is not addressed in the sources.",
        "Sorry, the sources don't mention that.",
        "I cannot determine the rent.",
        "It cannot be determined how high the deposit is.",
        "It is unclear how high the deposit is.",
        "I'm unsure how high the deposit is.",
        "I couldn't find the deposit in the documents.",
        "The deposit isn't stated in the documents.",
        "There isn't enough information to say how high the deposit is.",
        "The deposit cannot be determined from the sources.",
    ),
    "de": (
        "Die Quellen enthalten dazu keine Informationen.",
        "In den Quellen wird das nicht erwähnt.",
        "Das geht aus den Quellen nicht hervor.",
        "Dazu steht nichts in den Dokumenten.",
        "Ich kann diese Frage nicht beantworten.",
        "Die vorliegenden Texte geben darüber keine Auskunft.",
        "Anhand der Quellen lässt sich die Frage nicht beantworten.",
        "Die Quellen nennen keinen Preis.",
        "Ich kann nicht feststellen, wie hoch die Kaution ist.",
        "Es ist unklar, wie hoch die Kaution ist.",
    ),
    "es": (
        "Las fuentes no mencionan el precio.",
        "No hay información suficiente en las fuentes.",
        "No se menciona en los documentos proporcionados.",
        "El contexto no proporciona esta información.",
        "No puedo responder a esta pregunta con las fuentes disponibles.",
        "Los documentos no dicen nada sobre el aparcamiento.",
        "No lo sé.",
        "No está claro cuál es el depósito.",
    ),
    "fr": (
        "Les sources ne mentionnent pas le prix.",
        "Il n'y a pas d'informations à ce sujet dans les sources.",
        "Cette information n’est pas mentionnée dans les documents.",
        "Le contexte ne permet pas de répondre à cette question.",
        "Je ne peux pas répondre à cette question.",
        "Aucune information sur le stationnement ne figure dans les sources.",
        "Je ne sais pas.",
        "Les documents fournis ne contiennent aucune information sur ce point.",
    ),
    "zh": (
        "资料中没有提到价格。",
        "来源未提及停车位。",
        "根据提供的资料，无法回答这个问题。",
        "没有足够的信息来回答。",
        "文档中没有相关信息。",
        "我不知道。",
        "提供的上下文中没有找到答案。",
        "資料中並沒有說明價格。",
    ),
    "ar": (
        "المصادر لا تذكر السعر.",
        "لا تذكر المصادر شيئًا عن مواقف السيارات.",
        "لا توجد معلومات كافية للإجابة عن هذا السؤال.",
        "لم يرد ذلك في المصادر.",
        "لا أعرف.",
        "لا يُمكنني الإجابة عن هذا السؤال.",
        "لا تحتوي الوثائق المقدمة على معلومات حول هذا الموضوع.",
        "السياق لا يوفر إجابة.",
    ),
}

STATEMENTS = (
    "The document is not valid without a signature.",
    "Pets are not allowed.",
    "The sources do not say, but the rent is 500 EUR.",
    "The information must not be passed on to third parties.",
    "The rent is 500 euros, it is unclear when it is due.",
    "The text is unclear and the fee is 300 euros.",
    "The ownership of the dog is unclear.",
    "No fee is charged for the first year.",
    "Haustiere sind nicht erlaubt.",
    "Das Dokument ist ohne Unterschrift nicht gültig.",
    "Die Quellen nennen keine Frist, jedoch gilt das Gesetz.",
    "Die Miete darf nicht mehr als 4 % steigen.",
    "Es gibt keine Gebühr.",
    "Los perros no están permitidos.",
    "La información no se transmite a terceros.",
    "El contrato no incluye el agua.",
    "No se paga nada en el primer mes.",
    "Les chiens ne sont pas admis.",
    "Le contrat ne prévoit pas de caution.",
    "Aucune caution n'est demandée.",
    "狗不允许进入。",
    "合同不包括水费。",
    "押金不退还。",
    "该文件没有签名则无效。",
    "资料没有说明期限，但法律规定为三个月。",
    "لا يُسمح بالكلاب.",
    "العقد لا يشمل المياه.",
    "لا يجوز رفع الإيجار أكثر من 4%.",
)


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in DENIALS.items() for text in texts])
def test_a_denial_is_known_in_every_language(code: str, text: str) -> None:
    assert denied_part(text) is not None, code
    assert read_statement(text).reason == DENIAL or is_courtesy(text)


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_negative_statement_is_no_denial(text: str) -> None:
    assert denied_part(text) is None
    assert read_statement(text).reason is None


@pytest.mark.parametrize(
    "text",
    ["Of course.", "Vielen Dank!", "Guten Tag", "¡Hola!", "Muchas gracias.", "Bonjour,", "您好！", "谢谢。", "شكرًا!", "نعم."],
)  # fmt: skip
def test_courtesies(text: str) -> None:
    assert read_statement(text).reason == "a courtesy"


@pytest.mark.parametrize(
    "text",
    ["Natürlich dürfen Sie zwei Hunde halten.", "Claro que el alquiler sube cada año.", "当然可以养两只狗。", "如有损坏由租客赔偿。"],
)  # fmt: skip
def test_a_polite_opening_with_a_statement_is_checked(text: str) -> None:
    assert read_statement(text).reason is None


@pytest.mark.parametrize(
    "text",
    ["Please contact the office.", "Bitte wenden Sie sich an uns.", "Por favor, consulte la web.", "Veuillez contacter l'accueil.", "请联系客服。", "يُرجى التواصل معنا."],
)  # fmt: skip
def test_next_steps(text: str) -> None:
    assert is_next_step(text)
    assert denied_part(text) is None


@pytest.mark.parametrize("code", SUPPORTED)
def test_every_phrase_is_found_alone_and_in_a_sentence(code: str) -> None:
    for kind in ("strong", "moderate"):
        for phrase in language_tables()[code]["wording"][kind]:
            for text in (phrase, f"{phrase.capitalize()}.", f"X {phrase}, y"):
                assert getattr(hedging(text), kind), (phrase, text)


def test_a_phrase_inside_a_word_or_its_opposite_is_not_found() -> None:
    for text in ("It is unlikely.", "Das Wohlergehen zählt.", "这不可能。", "Ledependency"):
        assert hedging(text) == hedging(""), text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("It costs $100 or 4% after 3 days, for those 18 years old.", 4),
        ("Das kostet 3,5 Mio. Euro, 12 % mehr, 30 Tage lang.", 3),
        ("Cuesta 500 dólares y dura 2 años; 3 %.", 3),
        ("Il coûte 30 € pendant 2 mois.", 2),
        ("租金为3500元，涨4%，百分之5，租期2年。", 4),
        ("الإيجار ٥٠٠ ريال لمدة 3 سنوات بزيادة ٤٪", 3),
        ("€1,246,000,000.00 and 12345678901234567890123 kg", 1),
        ("See section 4.2 and Art. 5 of 2016.", 0),
        ("", 0),
    ],
)
def test_figures_are_counted_once_each(text: str, count: int) -> None:
    assert figures(text) == count


@pytest.mark.parametrize(
    ("question", "factual"),
    [
        ("When does it open?", True),
        ("Explain the refund policy", False),
        ("Wie viel kostet das?", True),
        ("Erkläre die Regel", False),
        ("¿Cuánto cuesta?", True),
        ("Combien de temps ?", True),
        ("多少钱？", True),
        ("解释退款政策", False),
        ("كم السعر؟", True),
        ("اشرح سياسة الاسترداد من فضلك", False),
    ],
)
def test_factual_questions(question: str, factual: bool) -> None:  # noqa: FBT001 - an expectation
    assert is_factual(question) is factual
