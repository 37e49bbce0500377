"""Questions about sources of four fields in six languages: the offline provider quotes the answer or abstains."""
# ruff: noqa: RUF001 - Chinese punctuation is meant

import json
from typing import Any

import pytest

from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from tasks.prompting.messages import render
from worker.providers.extractive import Extractive, answer

CAR = [
    {
        "content": "Glass breakage is covered up to $900 per claim, with an excess of $75. Hail damage to the bodywork is covered up to $4,000, with an excess of $250. Scratches caused by washing are not insured.",
        "title": "Autosafe Terms",
    },
    {
        "content": "# Theft\nThe insurer pays the replacement value up to $25,000. The police must be informed within 24 hours.\n\n# Fire\nThe insurer pays the market value up to $18,000.",
        "title": "Autosafe Terms",
    },
    {
        "content": "| Cover | Limit | Excess |\n|---|---|---|\n| Roadside assistance | $300 | none |\n| Rental car | $40 a day | $0 |\n| Legal costs | $10,000 | $200 |\n",
        "title": "Autosafe Terms",
    },
]
TENANCY = [
    {
        "content": "Art. 5 Deposit. The deposit is at most two monthly rents. The landlord returns it within 30 days of the end of the tenancy. Art. 6 Repairs. The tenant pays for small repairs up to 100 euros, the landlord for all others.",
        "title": "Tenancy Act",
    },
    {
        "content": "Art. 9 Subletting. Subletting needs the written consent of the landlord. Consent may be refused if the flat would be overcrowded.",
        "title": "Tenancy Act",
    },
]
PUMP = [
    {
        "content": "Cleaning the filter\n1. Switch off the pump and pull the plug.\n2. Unscrew the lid.\n3. Rinse the filter under running water.\n4. Put the filter back and close the lid.\n\nChanging the belt\n1. Loosen the two bolts.\n2. Replace the belt.",
        "title": "Pump P20 manual",
    },
    {
        "content": "The noise level is 48 dB at full load. The power consumption is 350 W. The warranty lasts 24 months from the date of purchase.",
        "title": "Pump P20 manual",
    },
]
REPORT = [
    {
        "content": "Sales of Arvo rose by 6% to 84 million euros in 2023, while sales of Bento fell by 2% to 51 million euros. The number of employees was 412 at the end of 2023.",
        "title": "Group Report 2023",
    },
    {
        "content": "| million euros | 2023 | 2022 |\n|---|---|---|\n| Revenue | 135 | 131 |\n| Net profit | 9.4 | 7.8 |\n",
        "title": "Group Report 2023",
    },
]
GERMAN = [
    {
        "content": "Die Kündigungsfrist beträgt drei Monate zum Monatsende. Der Beitrag ist am 1. Januar fällig. Die Selbstbeteiligung bei Hagelschäden beträgt 300 Euro, bei Sturmschäden 500 Euro.",
        "title": "Hausrat Bedingungen",
    },
    {
        "content": "Fahrräder sind bis 1.200 Euro gegen Diebstahl versichert. Die Polizei ist binnen drei Tagen zu benachrichtigen.",
        "title": "Hausrat Bedingungen",
    },
]
FRENCH = [
    {
        "content": "La franchise est de 150 euros pour un bris de glace et de 400 euros pour un vol. Le sinistre doit être déclaré dans les cinq jours ouvrés.",
        "title": "Conditions Auto",
    },
    {
        "content": "Le contrat peut être résilié chaque année moyennant un préavis de deux mois.",
        "title": "Conditions Auto",
    },
]
SPANISH = [
    {
        "content": "La franquicia es de 200 euros por robo y de 90 euros por rotura de cristales. El siniestro debe comunicarse en un plazo de siete días.",
        "title": "Condiciones Hogar",
    },
    {"content": "El contrato puede rescindirse con un preaviso de un mes.", "title": "Condiciones Hogar"},
]
CHINESE = [
    {
        "content": "玻璃破损的免赔额为500元。盗窃的免赔额为2000元。发生事故后应在48小时内通知保险公司。",
        "title": "汽车保险条款",
    },
    {"content": "合同可以提前三十天通知解除。", "title": "汽车保险条款"},
]
ARABIC = [
    {
        "content": "مبلغ التحمل عند كسر الزجاج هو 500 ريال. مبلغ التحمل عند السرقة هو 2000 ريال. يجب إبلاغ الشركة خلال 48 ساعة من الحادث.",
        "title": "وثيقة السيارات",
    },
    {"content": "يمكن إنهاء العقد بإشعار مدته ثلاثون يوما.", "title": "وثيقة السيارات"},
]

ANSWERED = [
    (CAR, "What is the excess for hail damage?", "$250"),
    (CAR, "What is the excess for glass breakage?", "$75"),
    (CAR, "Up to what amount does the insurer pay after a fire?", "$18,000"),
    (CAR, "What is the limit for a rental car?", "$40"),
    (CAR, "What is the excess for legal costs?", "$200"),
    (CAR, "Are scratches from washing insured?", "not insured"),
    (CAR, "When must the police be informed of a theft?", "24 hours"),
    (TENANCY, "How high may the deposit be?", "two monthly"),
    (TENANCY, "Who pays for small repairs?", "tenant pays"),
    (TENANCY, "When must the deposit be returned?", "30 days"),
    (TENANCY, "May the landlord refuse consent to subletting?", "overcrowded"),
    (PUMP, "How do I clean the filter of the P20?", "4. Put"),
    (PUMP, "How do I change the belt?", "2. Replace"),
    (PUMP, "What is the noise level of the P20?", "48 dB"),
    (PUMP, "How long is the warranty?", "24 months"),
    (REPORT, "How much did sales of Bento fall in 2023?", "2%"),
    (REPORT, "How high was the net profit in 2022?", "2022: 7.8"),
    (REPORT, "How many employees were there at the end of 2023?", "412"),
    (GERMAN, "Wie hoch ist die Selbstbeteiligung bei Sturmschäden?", "500 Euro"),
    (GERMAN, "Wie lange ist die Kündigungsfrist?", "drei Monate"),
    (GERMAN, "Bis zu welchem Betrag sind Fahrräder versichert?", "1.200"),
    (GERMAN, "Wann ist der Beitrag fällig?", "Januar"),
    (FRENCH, "Quelle est la franchise pour un vol ?", "400"),
    (FRENCH, "Quel est le préavis pour résilier le contrat ?", "deux mois"),
    (SPANISH, "¿Cuál es la franquicia por robo?", "200"),
    (SPANISH, "¿En qué plazo debe comunicarse el siniestro?", "siete"),
    (SPANISH, "¿Con qué preaviso puede rescindirse el contrato?", "un mes"),
    (CHINESE, "盗窃的免赔额是多少？", "2000"),
    (CHINESE, "事故后多久要通知保险公司？", "48"),
    (ARABIC, "ما مبلغ التحمل عند السرقة؟", "2000"),
    (ARABIC, "متى يجب إبلاغ الشركة؟", "48"),
]
UNANSWERED = [
    (CAR, "What is the limit for dental treatment?"),
    (CAR, "Why was the premium for hail raised in 2022?"),
    (TENANCY, "May the tenant keep a dog?"),
    (TENANCY, "When must the rent be paid?"),
    (TENANCY, "How much notice must the tenant give?"),
    (PUMP, "How do I connect the P20 to Bluetooth?"),
    (PUMP, "How much does the P20 weigh?"),
    (REPORT, "What was the dividend per share in 2023?"),
    (REPORT, "Who is the chief executive of the group?"),
    (GERMAN, "Wie hoch ist die Selbstbeteiligung bei Überschwemmung?"),
    (GERMAN, "Ist Schmuck im Bankschließfach versichert?"),
    (FRENCH, "Quelle est la franchise en cas d'inondation ?"),
    (SPANISH, "¿Cuál es la franquicia por inundación?"),
]


def quote(sources: Any, query: str) -> str:
    """The answer, or nothing for an abstention."""
    request = JobRequest.model_validate({"query": query, "context": sources})
    call = Extractive().plan(request, render(request, AnswerProtocol.SEGMENTS))
    answer_json = json.loads(answer(call).raw)
    return " ".join(segment["text"] for segment in answer_json["segments"]) if answer_json["sufficient"] else ""


@pytest.mark.parametrize(("sources", "query", "words"), ANSWERED, ids=[query for _, query, _ in ANSWERED])
def test_it_quotes_what_is_asked_of_the_subject(sources: Any, query: str, words: str) -> None:
    assert words in quote(sources, query)


@pytest.mark.parametrize(("sources", "query"), UNANSWERED, ids=[query for _, query in UNANSWERED])
def test_it_abstains_where_no_source_says_it(sources: Any, query: str) -> None:
    assert not quote(sources, query)


def test_most_words_of_the_subject_are_in_some_source() -> None:
    sources = [
        {"content": "We pay up to $500 for belongings in your car.", "title": "Motor Comfort"},
        {"content": "You may cancel the insurance within 14 days.", "title": "Motor Comfort"},
    ]
    assert not quote(sources, "Can I insure the wall box in my garage for my electric car, and up to what amount?")
    assert "$500" in quote(sources, "Up to what amount are belongings in my car covered?")
