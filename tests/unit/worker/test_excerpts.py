"""Choosing excerpts: the subject of the question, in six languages, and quotes that stand alone."""
# ruff: noqa: RUF001 - other scripts are meant

import json
from typing import Any

import pytest

from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from tasks.prompting.messages import render
from worker.providers.extractive import Extractive, answer

LEASES = {
    "en": (
        (
            "The deposit is two monthly rents and is returned 45 days after the keys are handed over. The tenant may sublet"
            " a room with the written consent of the landlord. Repairs up to 80 euros are paid by the tenant. Notice by"
            " e-mail is void."
        ),
        {
            "How high is the deposit?": "two monthly rents",
            "When is the deposit returned?": "45 days",
            "Who has to consent before I sublet a room?": "landlord",
            "Is notice by e-mail valid?": "void",
        },
        ("Am I allowed to keep a dog?", "Who pays for the broadband connection?", "How many parking spaces are there?"),
    ),
    "de": (
        (
            "Die Kaution beträgt zwei Monatsmieten und wird 45 Tage nach der Übergabe der Schlüssel zurückgezahlt. Der"
            " Mieter darf ein Zimmer mit schriftlicher Zustimmung des Vermieters untervermieten. Reparaturen bis 80 Euro"
            " zahlt der Mieter. Eine Kündigung per E-Mail ist unwirksam."
        ),
        {
            "Wie hoch ist die Kaution?": "zwei Monatsmieten",
            "Wann wird die Kaution zurückgezahlt?": "45 Tage",
            "Darf ich ein Zimmer untervermieten?": "Zustimmung",
            "Ist eine Kündigung per E-Mail wirksam?": "unwirksam",
        },
        ("Darf ich einen Hund halten?", "Wer bezahlt den Internetanschluss?", "Wie viele Parkplätze gibt es?"),
    ),
    "es": (
        (
            "La fianza asciende a dos mensualidades y se devuelve 45 días después de la entrega de las llaves. El inquilino"
            " puede subarrendar una habitación con el consentimiento escrito del propietario. El inquilino paga las"
            " reparaciones de hasta 80 euros. La rescisión por correo electrónico es nula."
        ),
        {
            "¿A cuánto asciende la fianza?": "dos mensualidades",
            "¿Cuándo se devuelve la fianza?": "45 días",
            "¿Puedo subarrendar una habitación?": "consentimiento",
            "¿Quién paga las reparaciones?": "80 euros",
        },
        ("¿Puedo tener un perro?", "¿Quién paga la conexión a internet?", "¿Cuántas plazas de aparcamiento hay?"),
    ),
    "fr": (
        (
            "La caution s'élève à deux loyers et elle est rendue 45 jours après la remise des clés. Le locataire peut"
            " sous-louer une chambre avec l'accord écrit du propriétaire. Le locataire paie les réparations jusqu'à"
            " 80 euros. La résiliation par courriel est nulle."
        ),
        {
            "À combien s'élève la caution ?": "deux loyers",
            "Quand la caution est-elle rendue ?": "45 jours",
            "Puis-je sous-louer une chambre ?": "accord",
            "Qui paie les réparations ?": "80 euros",
        },
        ("Puis-je avoir un chien ?", "Qui paie la connexion internet ?", "Combien de places de parking y a-t-il ?"),
    ),
    "zh": (
        "押金为两个月的租金，在交还钥匙后45天内退还。租客经房东书面同意可以转租一个房间。80欧元以下的维修费由租客承担。通过电子邮件发出的解约通知无效。",
        {
            "押金是多少？": "两个月",
            "押金什么时候退还？": "45天",
            "可以转租房间吗？": "书面同意",
            "维修费由谁承担？": "租客",
        },
        ("可以养狗吗？", "网络费用由谁支付？", "有多少个停车位？"),
    ),
    "ar": (
        (
            "يبلغ التأمين إيجار شهرين. يعاد التأمين بعد 45 يوما من تسليم المفاتيح. يجوز للمستأجر تأجير غرفة من الباطن بموافقة"
            " خطية من المالك. يدفع المستأجر تكاليف الإصلاحات حتى 80 يورو. الإشعار بالبريد الإلكتروني باطل."
        ),
        {
            "كم يبلغ التأمين؟": "شهرين",
            "متى يعاد التأمين؟": "45",
            "هل يجوز تأجير غرفة من الباطن؟": "خطية",
            "من يدفع تكاليف الإصلاحات؟": "المستأجر",
        },
        ("هل يسمح بتربية كلب؟", "من يدفع اشتراك الإنترنت؟", "كم عدد مواقف السيارات؟"),
    ),
}


def excerpts(query: str, *context: Any, **request: Any) -> list[str]:
    """The texts of an answer without the white space between them; none for an abstention."""
    job = JobRequest(query=query, context=context, config=GenerationConfig(), **request)
    reply = json.loads(answer(Extractive().plan(job, render(job, AnswerProtocol.SEGMENTS))).raw)
    return [segment["text"].strip() for segment in reply["segments"]] if reply["sufficient"] else []


@pytest.mark.parametrize("code", LEASES)
def test_it_quotes_what_the_question_asks_for(code: str) -> None:
    source, questions, _ = LEASES[code]
    answers = {query: " ".join(excerpts(query, source)) for query in questions}
    assert {query: expected in answers[query] for query, expected in questions.items()} == dict.fromkeys(
        questions, True
    ), answers


@pytest.mark.parametrize("code", LEASES)
def test_it_abstains_when_the_source_is_about_other_things(code: str) -> None:
    source, _, questions = LEASES[code]
    assert {query: excerpts(query, source) for query in questions} == {key: [] for key in questions}


# ---- quotes that stand alone -------------------------------------------------------------------------------------

SOFTENER = {
    "title": "Brevik DX-40 - User Manual",
    "content": """3.2 Setting the water softener

The softener must be set to the hardness of your tap water.

1. Switch the appliance on and close the door.
2. Press and hold "Extra Dry" for 5 seconds until the softener level flashes.
3. Press "Start" repeatedly until the level appears.
4. Switch the appliance off. The level is stored.

| Hardness (°dH) | Softener level |
|---|---|
| 0–6 | H0 |
| 7–12 | H2 |
| 13–17 | H3 |
| 18–23 | H4 |

Use coarse salt only.""",
}


def test_a_row_is_quoted_with_the_names_of_its_columns_and_alone() -> None:
    query = "Which softener level for a hardness of 13–17 °dH?"
    assert "Hardness (°dH): 13–17; Softener level: H3." in excerpts(query, SOFTENER)
    quoted = " ".join(excerpts(query, SOFTENER))
    assert not any(other in quoted for other in ("|", "H0", "H2", "H4"))


def test_a_list_is_quoted_whole_and_in_its_order_when_the_question_asks_for_steps() -> None:
    steps = excerpts("How do I set the softener level of the DX-40?", SOFTENER)
    numbered = [step for step in steps if step[0].isdigit()]
    assert [step[:2] for step in numbered] == ["1.", "2.", "3.", "4."]
    assert numbered[3] == "4. Switch the appliance off. The level is stored."


@pytest.mark.parametrize(
    "content",
    [
        "# Notice by the landlord\n\nThe notice period for the landlord is six months.",
        "Notice by the landlord\n\nThe notice period for the landlord is six months.",
        "Art. 28 Notice by the landlord. (1) The notice period for the landlord is six months.",
        "§ 28 Notice by the landlord\n(1) The notice period for the landlord is six months.",
        "What is the notice period for the landlord?\nThe notice period for the landlord is six months.",
        "Notice periods for the landlord:\n- The notice period for the landlord is six months",
    ],
)
def test_headings_questions_and_list_markers_are_left_out(content: str) -> None:
    assert excerpts("What is the notice period for the landlord?", content) == [
        "The notice period for the landlord is six months."
    ]


def test_each_part_of_a_question_gets_its_excerpt() -> None:
    sources = (
        "The waiting period for crowns is 6 months. It begins with the contract. Premiums are due monthly.",
        "Crowns are reimbursed at 60% of the invoice. Bills can be sent by post.",
    )
    assert set(
        excerpts("How long is the waiting period for crowns, and what share of the invoice is reimbursed?", *sources)
    ) >= {
        "The waiting period for crowns is 6 months.",
        "Crowns are reimbursed at 60% of the invoice.",
    }


def test_a_source_about_another_name_does_not_answer() -> None:
    sources = [
        {
            "title": f"{company} AG - Annual Report 2024",
            "content": "Revenue rose to 392.6 million euros. It grew by 5%.",
        }
        for company in ("Lindqvar", "Merrowdale")
    ]
    assert excerpts("How high was the revenue of Lindqvar in 2024?", sources[0])
    assert not excerpts("How high was the revenue of Lindqvar in 2024?", sources[1])
