"""One answer per language through parsing, citing and checking: a true claim, a false claim and exact offsets."""
# ruff: noqa: RUF001 - other scripts are meant

import pytest

from schemas.claim_error import ErrorKind
from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground

CASES = {
    "en": (
        "The rent is $3,500 a month, incl. heating. Dr. Weaver keeps the deposit of 1.5 months until the end.",
        "Dr. Weaver keeps the deposit of 1.5 months [1].",
        "The rent is $4,100 a month, incl. heating [1].",
        "Elephants may be kept in the garden all summer [1].",
    ),
    "de": (
        "Die Miete beträgt 3.500,50 Euro, z. B. per Überweisung. Die Kaution von 1,5 Mieten behält Dr. Weber bis zuletzt.",
        "Dr. Weber behält die Kaution von 1,5 Mieten bis zuletzt [1].",
        "Die Miete beträgt 4.100,50 Euro, z. B. per Überweisung [1].",
        "Elefanten dürfen den ganzen Sommer im Garten wohnen [1].",
    ),
    "es": (
        "El alquiler es de 3.500,50 euros al mes. El Sr. García guarda la fianza de 1,5 meses hasta el final. ¿Y los perros?",
        "El Sr. García guarda la fianza de 1,5 meses hasta el final [1].",
        "El alquiler es de 4.100,50 euros al mes [1].",
        "Los elefantes pueden vivir en el jardín todo el verano [1].",
    ),
    "fr": (
        "Le loyer est de 3 500,50 euros par mois. M. Dupont garde la caution de 1,5 mois jusqu'à la fin du bail.",
        "M. Dupont garde la caution de 1,5 mois jusqu’à la fin du bail [1].",
        "Le loyer est de 4 100,50 euros par mois [1].",
        "Les éléphants peuvent vivre au jardin tout l'été [1].",
    ),
    "zh": (
        "租金为每月3,500元，租期2年。房东保留相当于1.5个月租金的押金，直到合同结束。可以养狗吗？",
        "房东保留1.5个月租金的押金[1]。",
        "租金为每月4,100元[1]。",
        "大象整个夏天都住在花园[1]。",
    ),
    "ar": (
        "يَبلُغُ الإيجارُ الشهري ٣٬٥٠٠ ريال. يحتفظ د. أحمد بالتأمين البالغ ١٫٥ شهر حتى نهاية العقد. هل يُسمح بالكلاب؟",
        "يحتفظ د. أحمد بالتأمين البالغ 1.5 شهر حتى نهاية العقد [1].",
        "يبلغ الإيجار الشهري 4,100 ريال [1].",
        "تعيش الفيلة في الحديقة طوال الصيف [1].",
    ),
    "ja": (
        "家賃は月3,500円です。家主は1.5か月分の敷金を契約の終わりまで預かります。犬は飼えますか？",
        "家主は1.5か月分の敷金を預かります[1]。",
        "家賃は月4,100円です[1]。",
        "ゾウは夏の間ずっと庭に住んでいます[1]。",
    ),
}


@pytest.mark.parametrize("code", CASES)
@pytest.mark.parametrize("named", [True, False])
def test_claims_get_the_right_verdicts_and_exact_positions(code: str, *, named: bool) -> None:
    source, true, wrong_number, made_up = CASES[code]
    sentences = (true, wrong_number, made_up)
    config = {"language": code} if named else {}
    request = JobRequest(query="?", context=("Something else.", source), response=" ".join(sentences).replace("[1]", "[2]"), config=config)  # fmt: skip
    processed = postprocess(request, None, None)
    grounding = ground(request, processed)

    assert [processed.response[claim.start_pos : claim.end_pos] for claim in grounding.claims] == [
        sentence.replace("[1]", "[2]") for sentence in sentences
    ]
    right, wrong, invented = grounding.claims
    # Words that stand in another order may leave a claim undecided; they never turn it round.
    assert right.verdict in {Verdict.SUPPORTED, Verdict.UNDECIDED}
    assert wrong.verdict in {Verdict.CONTRADICTED, Verdict.UNDECIDED}
    assert (wrong.error.kind if wrong.error else ErrorKind.NUMBER) is ErrorKind.NUMBER
    assert (invented.verdict, invented.error) == (Verdict.UNDECIDED, None)
    supported = processed.citations[0]
    assert supported.source_index == 1
    assert processed.response[supported.start_pos : supported.end_pos] == "[2]"
    assert source[supported.source_start : supported.source_end] == supported.quoted_text
    assert "1" in supported.quoted_text or "١" in supported.quoted_text
    for claim in grounding.claims:
        for evidence in claim.evidence:
            assert 0 <= evidence.start < evidence.end <= len(request.context[evidence.source_index].content)
