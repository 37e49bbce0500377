"""Risk and coverage of what words decide, on pairs whose writers had not seen the rule: ``bench/claims/dev``."""

import json
from collections import Counter
from pathlib import Path

import pytest

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground

CLAIMS = Path(__file__).parents[3] / "bench" / "claims" / "dev"


def verdict(claim: str, *sources: object) -> Verdict:
    """The worst verdict on the claims of a text."""
    request = JobRequest(response=claim, context=sources)
    verdicts = {claim.verdict for claim in ground(request, postprocess(request, None, None)).claims}
    order = (Verdict.CONTRADICTED, Verdict.UNDECIDED, Verdict.SUPPORTED, Verdict.NOT_CHECKABLE)
    return next(verdict for verdict in order if verdict in verdicts)


def test_what_words_decide_is_rarely_wrong() -> None:
    counts: Counter[tuple[Verdict, bool]] = Counter()
    for path in sorted(CLAIMS.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            pair = json.loads(line)
            for label in (True, False):
                counts[verdict(pair["true" if label else "false"], *pair["sources"]), label] += 1
    supported = counts[Verdict.SUPPORTED, True] + counts[Verdict.SUPPORTED, False]
    contradicted = counts[Verdict.CONTRADICTED, True] + counts[Verdict.CONTRADICTED, False]
    assert counts[Verdict.SUPPORTED, False] <= 0.05 * supported
    assert counts[Verdict.CONTRADICTED, True] <= 0.05 * contradicted
    assert supported + contradicted >= 0.12 * sum(counts.values())


@pytest.mark.parametrize(
    ("source", "claim", "expected"),
    [
        ("The tablet contains 400 mg of ibuprofen.", "The tablet contains 400 g of ibuprofen.", Verdict.CONTRADICTED),
        ("The daily dose is 1,200 mg.", "The daily dose is 1.2 g.", Verdict.SUPPORTED),
        ("The warranty lasts two years.", "The warranty lasts 24 months.", Verdict.SUPPORTED),
        ("公司收入为3亿元。", "公司收入为3万元。", Verdict.CONTRADICTED),
        ("Growth was 3 % in May.", "Growth was -3 % in May.", Verdict.CONTRADICTED),
        ("Theft is included, vandalism is not.", "Vandalism is included.", Verdict.CONTRADICTED),
        ("Theft is included, vandalism is not.", "Vandalism is not included.", Verdict.SUPPORTED),
        ("Children under 12 must not take this.", "Children under 12 may take this.", Verdict.CONTRADICTED),
        ("Bicycles are covered only while locked.", "Bicycles are covered.", Verdict.UNDECIDED),
        ("Customers under 25 pay no fee.", "A customer aged 22 pays no fee.", Verdict.UNDECIDED),
        ("De huurder mag een hond houden.", "De huurder mag geen hond houden.", Verdict.CONTRADICTED),
        ("Najemca może trzymać psa.", "Najemca nie może trzymać psa.", Verdict.UNDECIDED),
        ('The clerk wrote "no refunds".', 'The clerk wrote "refunds on request".', Verdict.CONTRADICTED),
        ("The desk opens at nine.", "Desk", Verdict.UNDECIDED),
        ("Batteries are covered for a year.", "According to [1], batteries are covered for a year.", Verdict.SUPPORTED),
        ("Batteries are covered for a year.", "The source [1] states that batteries are covered.", Verdict.UNDECIDED),
        ("The HT-3 sensor draws 18 mA.", "The HT3 sensor draws 18 mA.", Verdict.SUPPORTED),
        ("The HT-3 sensor draws 18 mA.", "The HT-4 sensor draws 18 mA.", Verdict.CONTRADICTED),
        (
            "11.3 The Supplier need not disclose recipes.",
            "The supplier is not obliged to disclose recipes.",
            Verdict.SUPPORTED,
        ),
        (
            "Serum keeps for 72 hours at 8 °C. Blood must not be frozen.",
            "Serum: keeps for 72 hours at 8 °C",
            Verdict.SUPPORTED,
        ),
        ("Nel magazzino bastano scarpe e gilet.", "In magazzino bastano le scarpe e il gilet.", Verdict.SUPPORTED),
        ("Limite mensile: 5.000 euro.", "Il limite mensile è di 5.000 euro.", Verdict.SUPPORTED),
        (
            "We saw bats at bridges. The counts were made by volunteers.",
            "The counts at bridges were done by volunteers.",
            Verdict.UNDECIDED,
        ),
    ],
)
def test_a_fact_of_each_kind(source: str, claim: str, expected: Verdict) -> None:
    assert verdict(claim, source) is expected


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("The annual interest rate is 3.5 %.", "The annual interest rate is 3."),
        ("The total due for each tenant is 1.250.", "The total due for each tenant is 1."),
        ("The desk in the hall opens daily at 9:30.", "The desk in the hall opens daily at 9."),
        ("Refunds: 0.5 % of the premium is refunded yearly.", "5 % of the premium is refunded yearly."),
        ("Rounds are free: 2:15 hours of parking cost nothing.", "15 hours of parking cost nothing."),
        ("-3 % growth was measured last May.", "3 % growth was measured last May."),
        ("Allowed: >5 mg of lead per litre of water.", "5 mg of lead per litre of water."),
        ("< 5 mg of lead per litre of water is allowed.", "5 mg of lead per litre of water is allowed."),
        ("Note: $250 is the annual fee for members.", "250 is the annual fee for members."),
    ],
)
def test_a_piece_of_a_number_or_one_without_its_sign_is_no_copy(source: str, claim: str) -> None:
    assert verdict(claim, source) is not Verdict.SUPPORTED


@pytest.mark.parametrize(
    ("before", "sentence", "behind"),
    [
        (
            "(1) ",
            "The landlord shall return the deposit under Art. 15, para. 2 within 45 days.",
            " (2) It bears interest.",
        ),
        ("Notice. a) ", "3 months notice is required by tenants of the house.", ""),
        ("The tenant pays the rent.\n", "3 months notice is required by\nboth parties to it.", "\n"),
        ('He said: "', "3 months notice is required by both parties.", '"'),
        ("Use the key. 2. ", "Turn the valve of the pump to the left!", " 3. Wait."),
    ],
)
def test_a_copied_sentence_is_supported_wherever_it_stands(before: str, sentence: str, behind: str) -> None:
    assert verdict(" ".join(sentence.split()), f"{before}{sentence}{behind}") is Verdict.SUPPORTED


def test_the_metadata_of_a_source_names_what_its_facts_belong_to() -> None:
    basic = {"content": "The windscreen excess is $100.", "product_name": "Car Basic"}
    plus = {"content": "The windscreen excess is $250.", "product_name": "Car Plus"}
    assert verdict("With Car Plus the windscreen excess is $250 [2].", basic, plus) is Verdict.SUPPORTED
    assert verdict("With Car Basic the windscreen excess is $250 [2].", basic, plus) is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("It is a myth that coffee stunts growth.", "Coffee stunts growth."),
        ("The tenant claimed that the boiler was broken.", "The boiler was broken."),
        ("The company plans to open a shop in Rome.", "The company opened a shop in Rome."),
        ("Under the draft bill, smoking is banned in parks.", "Smoking is banned in parks."),
        ("About one in five adults smokes.", "One in five adults smokes."),
        ("The hotel has no pool, gym or sauna.", "The hotel has a sauna."),
        ("Pets are allowed with the consent of the owner.", "Pets are allowed."),
        ("All staff in Rome get a bonus.", "All staff get a bonus."),
        ("The pool is open in summer.", "The pool is open."),
        ("The flat is free from 1 May, the garage is not.", "The garage is free from 1 May."),
        ("Najemca nie może podnajmować mieszkania.", "Najemca może podnajmować mieszkanie."),
        ("Tjänsten är gratis utom på söndagar.", "Tjänsten är gratis."),
        ("Vitamin D is taken with meals.", "Vitamin A is taken with meals."),
        ("公司成立于一九九八年。", "公司成立于一九八八年。"),
        ("Customers of class I board first.", "Customers of class A board first."),
        ("See https://example.org/a for the form.", "See https://example.org/b for the form."),
        ("The shop is open until 8 p.m. unless it is a holiday.", "The shop is open until 8 p.m."),
        ("A parcel of up to 5 lb. without stamps is refused.", "A parcel of up to 5 lb."),
        ("Dogs may enter the park\nonly on a lead.", "Dogs may enter the park."),
        ("The brother of Jules Tissot directed the works.", "Jules Tissot directed the works."),
        ("Tarif S has a term of 24 months.", "Tarif M has a term of 24 months."),
        (
            "Les bijoux sont couverts jusqu'à 30 % du capital, qui est de 40 000 €.",
            "Les bijoux sont couverts jusqu'à 40 000 €.",
        ),
    ],
)
def test_what_a_claim_leaves_out_may_deny_it(source: str, claim: str) -> None:
    assert verdict(claim, source) is not Verdict.SUPPORTED


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("The third floor is closed for repairs.", "The second floor is closed for repairs."),
        ("Der dritte Stock ist gesperrt.", "Der zweite Stock ist gesperrt."),
        ("Half of the members agreed.", "Several of the members agreed."),
        ("Many branches open on Saturday.", "Most branches open on Saturday."),
        ("Lyon is the largest city of the region.", "Lyon is the best city of the region."),
        ("Service improved in May.", "Service increased in May."),
        ("The bridge will be built in 2030.", "The bridge was built in 2030."),
        ("She'll arrive at noon.", "She arrived at noon."),
        ("Le pont sera construit en 2030.", "Le pont a été construit en 2030."),
        ("Il ponte sarà costruito nel 2030.", "Il ponte è stato costruito nel 2030."),
        ("Her blood type is A+.", "Her blood type is A-."),
        ("Her blood type is A+.", "Her blood type is A."),
        ("The plugin is written in C++.", "The plugin is written in C."),
        ("The tolerance is ±0.5 mm.", "The tolerance is 0.5 mm."),
        ("The ointment contains 5 mg/g of zinc.", "The ointment contains 5 g/mg of zinc."),
        ("Release 3.20 adds dark mode.", "Release 3.2 adds dark mode."),
        ("Section 4.10 applies to leases.", "Section 4.1 applies to leases."),
        ("The dose is 1.500 mg a day.", "The dose is 1.500 g a day."),
        ("La planta produce 60.000 metros cúbicos al día.", "La planta produce 60.000 litros al día."),
        ("Is the centre open on public holidays? Please call.", "The centre is open on public holidays."),
    ],
)
def test_a_word_or_a_sign_of_another_meaning_is_no_copy(source: str, claim: str) -> None:
    assert verdict(claim, source) is not Verdict.SUPPORTED


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("Between 80 and 90 percent of patients recovered.", "85 percent of patients recovered."),
        ("The price is between €20 and €30.", "The price is €25."),
        ("Le traitement dure sept jours.", "Le traitement dure une semaine."),
        ("Der Stichtag ist der 1. Januar jedes Jahres.", "Der Stichtag ist der 1.1. jedes Jahres."),
        ("The price of version 3.10. is low.", "The price of version 3.10 is low."),
        ("The yield of the plot is 2.50 %.", "The yield of the plot is 2.5 %."),
        ("The grade is 2.50 of 5.", "The grade is 2.5 of 5."),
        ("You'll receive a new card.", "You will receive a new card."),
        ("The timeout of the probe is 20 s.", "The timeout of the probe is 20 seconds."),
        (
            "No, sale items can be exchanged only for another size.",
            "Sale items can be exchanged only for another size.",
        ),
        ("No, costa 1,50 € all'ora.", "Il parcheggio costa 1,50 € all'ora."),
        ("Das Bad ist sonntags von 9 bis 18 Uhr geöffnet.", "Das Bad ist sonntags von 9:00 bis 18:00 Uhr geöffnet."),
        ("El seguro incluye robo. La asistencia se incluye.", "La asistencia está incluida."),
        ("La table mesure 3 m de long.", "La table mesure 3 mètres de long."),
        ("The test takes half an hour.", "The test takes 30 minutes."),
        ("The test takes a day and a half.", "The test takes 36 hours."),
        ("Die Prüfung dauert eine halbe Stunde.", "Die Prüfung dauert 30 Minuten."),
        ("La prueba dura media hora.", "La prueba dura 30 minutos."),
        ("Der Test dauert eine Viertelstunde.", "Der Test dauert 15 Minuten."),
        ("The rink is open from 7 to 9 p.m. on Fridays.", "The rink is open from 19:00 to 21:00 on Fridays."),
        ("The film starts at 20:15. It lasts 90 minutes.", "The film ends at 21:45."),
        (
            "Sandra Lee was the first woman on the United States Supreme Court.",
            "Sandra Lee was the first woman on the U.S. Supreme Court.",
        ),
        ("Lots A, B and C weigh 3, 6 and 9 kg respectively.", "Lot C weighs 9 kg."),
        ("Der See ist etwa 40 Meter tief.", "Der See ist rund 40 Meter tief."),
        ("Sie verkaufte ihre Sammlung nach Rom.", "Sie verkaufte ihre Münzsammlung nach Rom."),
        ("In May the fee is $10. Since June the fee has been raised to $20.", "Since June the fee is $20."),
        ("El seguro básico incluye robo. Las lunas se incluyen en el otro.", "Las lunas están incluidas en el otro."),
    ],
)
def test_a_true_claim_in_other_figures_is_never_contradicted(source: str, claim: str) -> None:
    assert verdict(claim, source) is not Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("Bonds holds the record with 762. He passed Hank Aaron, who is second with 755.", "Hank Aaron"),
        ("It stars Melanie Lynskey, Elijah Wood, and David Yow. Macon Blair wrote it.", "Elijah Wood."),
        ("Men serve three years, and women serve two years.", "Women two years"),
        ("Frau Dr. Klein, die Maklerin, hat den Vertrag geprüft. Herr Weber hat ihn unterschrieben.", "Frau Dr. Klein"),
        ("Landlord: Birchwood Estates Ltd. Managing agent: Corley & Page.", "Birchwood Estates Ltd"),
        ("Der Fluss, die kleine Ahr, mündet in den Rhein.", "die kleine Ahr"),
    ],
)
def test_a_name_of_a_source_is_no_supported_answer(source: str, answer: str) -> None:
    assert verdict(answer, source) is Verdict.UNDECIDED


@pytest.mark.parametrize("claim", ["Revenue rose.", "Repairs are excluded.", "Price: $20."])
def test_a_short_sentence_of_a_source_is_supported(claim: str) -> None:
    assert verdict(claim, f"The report came late. {claim} Costs fell by 4 %.") is Verdict.SUPPORTED


def test_a_place_before_two_facts_belongs_to_both() -> None:
    stations = "| Car park | First hour | Day maximum |\n|---|---|---|\n| North | 2.40 € | 18.00 € |\n| South | 1.80 € | 14.00 € |"
    claim = "At South the first hour costs 1.80 € and the day maximum is 18.00 €."
    assert verdict(claim, stations) is not Verdict.SUPPORTED
    assert verdict("The first hour at South costs 1.80 €.", stations) is Verdict.SUPPORTED
    assert verdict("The day maximum is 18.00 €.", stations) is not Verdict.SUPPORTED


PLANS = "These are the plans of the year.\n\n| Plan | Price | Data |\n|---|---|---|\n| Basic | $20 | 5 GB |\n| Plus | $30 | 10 GB |"
DEVICES = (
    "| Gerät | Leistung (W) | Lautstärke in dB |\n|---|---|---|\n| Sauger S1 | 650 | 71 |\n| Sauger S2 | 800 | 76 |"
)


@pytest.mark.parametrize(
    ("claim", "source", "expected"),
    [
        ("The price of Basic is $20.", PLANS, Verdict.SUPPORTED),
        ("The Basic plan costs $20.", PLANS, Verdict.SUPPORTED),
        ("Plus has 10 GB of data.", PLANS, Verdict.SUPPORTED),
        ("The price of Basic is $30.", PLANS, Verdict.CONTRADICTED),
        ("The price of Plus is $20.", PLANS, Verdict.CONTRADICTED),
        ("Plus has 5 GB of data.", PLANS, Verdict.CONTRADICTED),
        ("Plan: Basic; Price: $20.", PLANS, Verdict.SUPPORTED),
        ("Plan: Basic; Data: $20.", PLANS, Verdict.CONTRADICTED),
        ("Basic has a price of 5 GB.", PLANS, Verdict.UNDECIDED),
        ("The data of Plus is $30.", PLANS, Verdict.UNDECIDED),
        ("Der Sauger S2 hat 800 Watt.", DEVICES, Verdict.SUPPORTED),
        ("Die Lautstärke des Sauger S1 beträgt 76 dB.", DEVICES, Verdict.CONTRADICTED),
        ("Die Leistung des Sauger S1 beträgt 800 Watt.", DEVICES, Verdict.CONTRADICTED),
    ],
)
def test_a_cell_of_a_table_belongs_to_its_row_and_its_column(claim: str, source: str, expected: Verdict) -> None:
    assert verdict(claim, source) is expected
