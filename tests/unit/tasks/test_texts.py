"""The texts in place of an answer, and their language."""
# ruff: noqa: RUF001 - other scripts are meant

import pytest

from schemas.job import FallbackMessages, GenerationConfig, JobRequest
from tasks.answers.texts import fallback
from tasks.text.language import SUPPORTED, language_of, language_tables

QUESTIONS = {
    "en": (
        "How long is the notice period?",
        "Who pays for repairs?",
        "What did revenue do in 2023?",
        "Is the deposit refundable?",
        "When does the desk open?",
        "Can I cancel online?",
        "Which documents are needed to register?",
        "What is the EBIT margin?",
        "Does it rain in Berlin?",
        "How do I renew my card?",
        "What are the side effects?",
        "Does the warranty cover water damage?",
        "Who signed the contract?",
        "List the exclusions",
        "Explain the refund policy",
        "What does the Straße GmbH sell?",
    ),
    "de": (
        "Wie lang ist die Kündigungsfrist?",
        "Wer zahlt Reparaturen?",
        "Öffnungszeiten Bibliothek Sonntag",
        "Wie hoch war der Umsatz 2023?",
        "Darf der Vermieter die Miete erhöhen?",
        "Was kostet ein Reisepass",
        "Wann öffnet der Schalter?",
        "Kann ich online kündigen?",
        "Welche Unterlagen brauche ich für die Anmeldung?",
        "Muss man den Hund anmelden?",
        "Gilt das auch in Wien?",
        "Ist Parken inbegriffen?",
        "maximales Gepäckgewicht",
        "Wie verlängere ich meine Karte?",
        "Welche Nebenwirkungen treten auf?",
        "Deckt die Garantie Wasserschäden ab?",
        "Wer hat den Vertrag unterschrieben?",
        "Nenne die Ausschlüsse",
        "Erkläre mir die Rückgabe",
    ),
    "es": (
        "¿Cuánto dura el plazo de preaviso?",
        "¿Quién paga las reparaciones?",
        "horario de la biblioteca los domingos",
        "¿Cuánto creció el ingreso en 2023?",
        "¿Se devuelve la fianza?",
        "cuanto cuesta el pasaporte",
        "¿Cuándo abre la oficina?",
        "¿Puedo cancelar en línea?",
        "¿Qué documentos necesito para registrarme?",
        "límite de edad seguro de viaje",
        "Como se calcula el impuesto?",
        "Hay descuento para estudiantes?",
        "¿Está incluido el aparcamiento?",
        "peso máximo del equipaje",
        "¿Cómo renuevo mi tarjeta?",
        "¿Cuáles son los efectos secundarios?",
        "La garantía cubre daños por agua?",
        "Quien firmó el contrato?",
        "Enumera las exclusiones",
        "Explica la política de reembolso",
    ),
    "fr": (
        "Quelle est la durée du préavis ?",
        "Qui paie les réparations ?",
        "horaires de la bibliothèque dimanche",
        "De combien le chiffre d'affaires a-t-il augmenté ?",
        "La caution est-elle remboursable ?",
        "combien coûte un passeport",
        "Quand ouvre le guichet ?",
        "Puis-je annuler en ligne ?",
        "Quels documents faut-il pour s'inscrire ?",
        "limite d'âge assurance voyage",
        "Est-ce que les chiens sont admis ?",
        "Peut-on payer en plusieurs fois ?",
        "Le stationnement est-il inclus ?",
        "Comment renouveler ma carte ?",
        "Quels sont les effets secondaires ?",
        "La garantie couvre-t-elle les dégâts des eaux ?",
        "Qui a signé le contrat ?",
        "Énumère les exclusions",
    ),
    "zh": (
        "通知期有多长？",
        "谁支付维修费用？",
        "图书馆星期日开放时间",
        "2023年收入增长了多少？",
        "押金可以退吗？",
        "護照多少錢？",
        "停车包括在内吗？",
        "GDP增长率是多少？",
    ),
    "ar": (
        "ما هي مدة الإشعار؟",
        "من يدفع تكاليف الإصلاح؟",
        "أوقات عمل المكتبة يوم الأحد",
        "كم بلغت الإيرادات في 2023؟",
        "هل يمكن استرداد التأمين؟",
        "هل يشمل السعر موقف السيارات؟",
        "كيف أجدد بطاقتي؟",
    ),
}
NOTHING_TELLS = (
    "Altersgrenze Reiseversicherung",
    "Explique la politique de remboursement",
    "poids maximal des bagages",
    "opening hours library Sunday",
    "windscreen excess amount",
    "travel insurance age limit",
    "Is parking included?",
    "maximum luggage weight",
)


SENTENCES = {
    "it": (
        "La durata del contratto è di quattro anni.",
        "Le spese sono a carico del locatore.",
        "Il termine di disdetta è di sei mesi.",
        "L'affitto aumenta del 4 % ogni anno.",
        "La richiesta va presentata entro trenta giorni.",
        "Quanto costa la polizza?",
        "Qual è la franchigia?",
        "Il conducente deve avere la patente.",
        "Non è coperto il danno da gelo.",
        "La macchina si spegne dopo dieci minuti.",
        "Nella tabella mancano le date.",
        "Questa garanzia vale anche all'estero.",
        "Il cliente ha diritto a un rimborso.",
        "Le fonti non lo dicono.",
        "Alla consegna il venditore rilascia una ricevuta.",
        "Tutti i danni vanno segnalati subito.",
    ),
    "fr": (
        "Le dépôt de garantie est de trois mois.",
        "La durée du contrat est de quatre ans.",
        "Les frais sont à la charge du bailleur.",
        "Quelle est la franchise ?",
        "Le client a droit à un remboursement.",
        "La demande arrive dans le mois.",
        "Le loyer augmente de 4 % par an.",
        "Il a une assurance.",
        "La machine se coupe au bout de dix minutes.",
        "Il va payer la prime.",
    ),
    "es": (
        "La fianza es de tres meses.",
        "La duración del contrato es de cuatro años.",
        "Los gastos corren a cargo del propietario.",
        "¿Cuál es la franquicia?",
        "El cliente tiene derecho a un reembolso.",
        "La renta sube un 4 % cada año.",
        "Una solicitud se presenta en un mes.",
        "La casa no tiene garaje.",
    ),
    "de": (
        "Die Kaution beträgt drei Monatsmieten.",
        "Der Vertrag läuft vier Jahre.",
        "Wie hoch ist die Selbstbeteiligung?",
        "Die Miete steigt um 4 % im Jahr.",
    ),
    "en": (
        "The deposit is three monthly rents.",
        "The contract runs for four years.",
        "How high is the excess?",
        "A tenant can leave in a month.",
        "I have no anno domini date.",
    ),
    "zh": ("押金为三个月的租金。",),
    "ar": ("مبلغ التأمين ثلاثة أشهر.",),
}


def message(code: str, kind: str) -> str:
    text: str = language_tables()[code]["messages"][kind]
    return text


@pytest.mark.parametrize(("code", "question"), [(code, q) for code, listed in QUESTIONS.items() for q in listed])
def test_a_short_questions_language_is_known(code: str, question: str) -> None:
    assert language_of(question) == code


@pytest.mark.parametrize(("code", "sentence"), [(code, s) for code, listed in SENTENCES.items() for s in listed])
def test_a_short_sentences_language_is_known(code: str, sentence: str) -> None:
    assert language_of(sentence) == code


@pytest.mark.parametrize("question", NOTHING_TELLS)
def test_without_a_word_or_letter_that_tells_it_is_english(question: str) -> None:
    assert language_of(question) is None


@pytest.mark.parametrize(
    "question",
    [
        "Qual é o prazo de aviso prévio?",
        "Chi paga le riparazioni?",
        "Wat kost een paspoort?",
        "Сколько стоит паспорт?",
        "料金はいくらですか？",
        "여권은 얼마입니까?",
        "هزینه گذرنامه چقدر است؟",
        "EBIT 2023",
        "12345",
        "",
    ],
)
def test_an_unsupported_language_gets_english_texts(question: str) -> None:
    assert language_of(question) not in SUPPORTED
    assert fallback(JobRequest(query=question, response=""), "failed") == message("en", "failed")


@pytest.mark.parametrize("kind", list(FallbackMessages.model_fields))
def test_every_language_has_every_text_in_itself(kind: str) -> None:
    texts = {code: message(code, kind) for code in SUPPORTED}

    assert len(set(texts.values())) == len(SUPPORTED)
    assert {code: language_of(text) for code, text in texts.items()} == {code: code for code in SUPPORTED}


@pytest.mark.parametrize("kind", list(FallbackMessages.model_fields))
def test_every_text_says_what_is_wrong_and_then_what_to_do(kind: str) -> None:
    for code in SUPPORTED:
        text = message(code, kind)
        assert sum(text.count(mark) for mark in ".。;؟,،，") >= 2, text


@pytest.mark.parametrize(
    ("config", "begins"),
    [
        (GenerationConfig(), "Las fuentes"),
        (GenerationConfig(language="de"), "Die vorliegenden"),
        (GenerationConfig(language="de-AT"), "Die vorliegenden"),
        (GenerationConfig(language="German"), "Die vorliegenden"),
        (GenerationConfig(language="zh_Hant"), "现有资料"),
        (GenerationConfig(language="Klingon"), "The sources"),
        (GenerationConfig(fallback_messages=FallbackMessages(abstained="Llámenos.")), "Llámenos."),
        (GenerationConfig(fallback_messages=FallbackMessages(failed="Llámenos.")), "Las fuentes"),
    ],
)
def test_texts_come_from_the_caller_then_in_the_configured_language_then_in_the_querys(
    config: GenerationConfig, begins: str
) -> None:
    request = JobRequest(query="¿Cuánto cuesta el pasaporte?", config=config)
    assert fallback(request, "abstained").startswith(begins)


def test_a_refusal_has_the_callers_text_for_a_failure_unless_it_has_its_own() -> None:
    def refusal(**own: str) -> str:
        config = GenerationConfig(fallback_messages=FallbackMessages(**own))
        return fallback(JobRequest(query="Can it fail?", config=config), "refused")

    assert refusal(failed="Call us.") == "Call us."
    assert refusal(failed="Call us.", refused="Ask anew.") == "Ask anew."
    assert refusal(abstained="No.") == message("en", "refused")
