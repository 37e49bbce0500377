"""The texts shown where there is no answer, and the language they are in."""
# ruff: noqa: RUF001 - other scripts are meant

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.generation import FallbackMessages, GenerationConfig
from schemas.job import JobRequest
from tasks.text.language import language_of
from tasks.texts import MESSAGES, code_of, fallback

QUESTIONS = {
    "en": (
        "How long is the notice period?",
        "Who pays for repairs?",
        "Is the deposit refundable?",
        "Can I cancel online?",
        "Does it rain in Berlin?",
        "What does the Straße GmbH sell?",
    ),
    "de": (
        "Wie lang ist die Kündigungsfrist?",
        "Wer zahlt Reparaturen?",
        "Öffnungszeiten Bibliothek Sonntag",
        "Kann ich online kündigen?",
        "Was kostet ein Reisepass",
        "Ist Parken inbegriffen?",
    ),
    "es": (
        "¿Cuánto dura el plazo de preaviso?",
        "horario de la biblioteca los domingos",
        "cuanto cuesta el pasaporte",
        "La garantía cubre daños por agua?",
        "Quien firmó el contrato?",
        "¿Puedo cancelar en línea?",
    ),
    "fr": (
        "Quelle est la durée du préavis ?",
        "De combien le chiffre d'affaires a-t-il augmenté ?",
        "Puis-je annuler en ligne ?",
        "combien coûte un passeport",
        "Qui a signé le contrat ?",
        "limite d'âge assurance voyage",
    ),
    "zh": ("通知期有多长？", "護照多少錢？", "GDP增长率是多少？", "2023年收入增长了多少？"),
    "ar": ("ما هي مدة الإشعار؟", "كم بلغت الإيرادات في 2023؟", "هل يشمل السعر موقف السيارات؟"),
}


@pytest.mark.parametrize(("code", "question"), [(code, q) for code, listed in QUESTIONS.items() for q in listed])
def test_a_short_questions_language_is_known(code: str, question: str) -> None:
    assert language_of(question) == code


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
def test_another_language_is_never_taken_for_a_known_one_and_is_told_in_english(question: str) -> None:
    assert language_of(question) not in MESSAGES
    assert fallback(JobRequest(query=question, response=""), "failed") == MESSAGES["en"].failed


@given(st.text(max_size=80))
def test_any_text_has_a_language_or_none_always_the_same(text: str) -> None:
    assert language_of(text) == language_of(text)
    assert fallback(JobRequest(query=text, response=""), "abstained")


@pytest.mark.parametrize("kind", list(FallbackMessages.model_fields))
def test_every_language_has_every_text_in_itself(kind: str) -> None:
    texts = {code: getattr(messages, kind) for code, messages in MESSAGES.items()}

    assert len(set(texts.values())) == len(MESSAGES)
    assert {code: language_of(text) for code, text in texts.items()} == {code: code for code in MESSAGES}


@pytest.mark.parametrize("kind", list(FallbackMessages.model_fields))
def test_every_text_says_what_is_wrong_and_then_what_to_do(kind: str) -> None:
    for messages in MESSAGES.values():
        text = getattr(messages, kind)
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
def test_the_callers_text_goes_first_then_the_language_asked_for_then_the_querys(
    config: GenerationConfig, begins: str
) -> None:
    request = JobRequest(query="¿Cuánto cuesta el pasaporte?", config=config)
    assert fallback(request, "abstained").startswith(begins)


def test_names_and_tags_of_languages() -> None:
    assert [code_of(name) for name in ("EN", "français", " Arabic ", "es-MX", "中文")] == ["en", "fr", "ar", "es", "zh"]
