"""Claims that differ from their source in one fact, by language, and right paraphrases beside them."""

from typing import NamedTuple

LEASE = (
    "The notice period is three months. The tenant must give notice in writing before 31 March. The deposit is at most two"
    " monthly rents. Plan A costs $35 a month. Plan B costs $50 a month. The office is in Brevik. The dishwasher has a"
    " warranty of five years. The landlord may enter the flat after 24 hours. All keys are returned on the last day."
    " A late fee of 4 % is charged. The rent rises every year. The offer is valid until Monday."
)
MIETE = (
    "Die Kündigungsfrist beträgt drei Monate. Der Mieter muss vor dem 31. März schriftlich kündigen. Die Kaution beträgt"
    " höchstens zwei Monatsmieten. Das Büro liegt in Brevik. Auf das Gerät gibt es fünf Jahre Garantie. Der Vermieter darf"
    " die Wohnung nach 24 Stunden betreten. Alle Schlüssel werden am letzten Tag übergeben. Die Gebühr beträgt 1.200 Franken."
)
BAIL = (
    "La durée du préavis est de trois mois. Le locataire doit envoyer la lettre avant le 31 mars. Le dépôt de garantie est"
    " au maximum de deux loyers. Le bureau se trouve à Brevik. L'appareil a une garantie de cinq ans. Le bailleur peut"
    " entrer dans le logement après 24 heures. Les animaux sont admis dans la résidence."
)
ALQUILER = (
    "El plazo de preaviso es de tres meses. El inquilino debe enviar la carta antes del 31 de marzo. La fianza es como"
    " máximo de dos mensualidades. La oficina está en Brevik. El aparato tiene una garantía de cinco años. El propietario"
    " puede entrar en la vivienda después de 24 horas. Las bicicletas no se admiten en el tren nocturno."
)
AFFITTO = (
    "Il periodo di preavviso è di tre mesi. L'inquilino deve inviare la lettera prima del 31 marzo. La cauzione è al"
    " massimo di due mensilità. L'ufficio si trova a Brevik. L'apparecchio ha una garanzia di cinque anni. Il proprietario"
    " può entrare nell'appartamento dopo 24 ore. Gli animali sono ammessi nella residenza."
)
ZULIN = "通知期为三个月。租客必须在3月31日之前书面通知。押金最多为两个月租金。茶园每年增加产量。参观者可以免费入场。"
IJAR = "مدة الإشعار ثلاثة أشهر. يجب تقديم الطلب قبل نهاية السنة. المكتبة مفتوحة كل يوم. يمكن استعارة خمسة كتب لمدة ثلاثة أسابيع."

POLICY = (
    "Water damage from burst pipes is covered up to 5,000 francs per event. The deductible is 200 francs. Claims"
    " are reported within 14 days. Theft from a locked car is covered in 2024 as well."
)
HOUSE_RULES = (
    "The policy is void if the premium is unpaid. Dogs are forbidden in the flat. The ferry stops in winter. Only"
    " members may vote."
)
DECKUNG = (
    "Wasserschäden durch geplatzte Rohre sind bis 5000 Franken gedeckt. Der Selbstbehalt beträgt 200 Franken."
    " Schäden sind innert 14 Tagen zu melden. Haustiere sind verboten."
)
COUVERTURE = (
    "Les dégâts d'eau dus aux conduites sont couverts jusqu'à 5000 francs. La franchise est de 200 francs. Le"
    " sinistre est annoncé dans les 14 jours. Les chiens sont interdits dans l'immeuble."
)
COBERTURA = (
    "Los daños de agua por tuberías están cubiertos hasta 5000 francos. La franquicia es de 200 francos. El"
    " siniestro se comunica en 14 días. Los perros están prohibidos en el edificio."
)
COPERTURA = (
    "I danni d'acqua dovuti alle tubature sono coperti fino a 5000 franchi. La franchigia è di 200 franchi. Il"
    " sinistro va comunicato entro 14 giorni. I cani sono vietati nell'edificio."
)
BAOXIAN = "水管破裂造成的损失最高赔偿5000元。免赔额为200元。损失须在14天内报告。公寓内禁止养狗。"

TERMS = (
    "Plan A costs $35 a month. Plan B costs $50 a month. The warranty lasts five years from purchase. The tenant receives two"
    " keys. The fine must not exceed 500 francs. The parcel is inspected a week after delivery, and paid ten days after delivery."
)
BEDINGUNGEN = (
    "Tarif A kostet 35 Franken im Monat. Tarif B kostet 50 Franken im Monat. Die Garantie beträgt fünf Jahre ab Kauf. Der"
    " Mieter erhält zwei Schlüssel."
)
CONDITIONS = (
    "Le plan A coûte 35 francs par mois. Le plan B coûte 50 francs par mois. La garantie est de cinq ans après l'achat. Le"
    " locataire reçoit deux clés."
)
CONDICIONES = (
    "El plan A cuesta 35 euros al mes. El plan B cuesta 50 euros al mes. La garantía es de cinco años desde la compra. El"
    " inquilino recibe dos llaves."
)
CONDIZIONI = (
    "Il piano A costa 35 euro al mese. Il piano B costa 50 euro al mese. La garanzia è di cinque anni dalla consegna. Il"
    " locatario riceve due chiavi."
)


class Change(NamedTuple):
    """A claim about a source, with the kind of its error; an empty kind for a right one."""

    language: str
    source: str
    claim: str
    kind: str


def changes(language: str, source: str, *rows: tuple[str, str]) -> list[Change]:
    return [Change(language, source, claim, kind) for claim, kind in rows]


CHANGES = [
    *changes(
        "en",
        LEASE,
        ("The notice period is six months.", "number"),
        ("The notice period is three weeks.", "number"),
        ("The deposit is at least two monthly rents.", "direction"),
        ("Plan B costs $35 a month.", "number"),
        ("Plan A costs $50 a month.", "number"),
        ("The office is in Oslo.", "absent"),
        ("The dishwasher has no warranty.", "negation"),
        ("There is no warranty.", "negation"),
        ("There is no deposit.", "negation"),
        ("The dishwasher has a warranty of two years.", "number"),
        ("The landlord may not enter the flat after 24 hours.", "negation"),
        ("The landlord must enter the flat after 24 hours.", "direction"),
        ("The landlord may enter the flat before 24 hours.", "direction"),
        ("The tenant must give notice in writing after 31 March.", "direction"),
        ("The tenant must give notice in writing before 31 May.", "date"),
        ("The tenant must give notice in writing before 30 March.", "date"),
        ("Some keys are returned on the last day.", "direction"),
        ("All keys are returned on the first day.", "direction"),
        ("A late fee of 7 % is charged.", "number"),
        ("No late fee of 4 % is charged.", "negation"),
        ("The rent never rises.", "negation"),
        ("The rent falls every year.", "direction"),
        ("The offer is valid until Friday.", "date"),
        ("The office is not a shop in Brevik.", "negation"),
        ("The deposit is not fixed at two monthly rents.", "negation"),
        ("Plan B costs $35.", "number"),
        ("The notice period is 3 months.", ""),
        ("The late fee isn't only for companies: 4 % is charged.", ""),
        ("Notice has to be given in writing by the tenant before March 31.", ""),
        ("The deposit is no more than two monthly rents.", ""),
        ("Plan A is $35 per month.", ""),
        ("Each month, plan B costs 50 dollars.", ""),
        ("The plans differ in price: plan A costs $35 a month, plan B $50 a month.", ""),
        ("The dishwasher has a five-year warranty.", ""),
        ("There are 60 months of warranty on the dishwasher.", ""),
        ("A late fee of four per cent is charged.", ""),
        ("After one day the landlord may enter the flat.", ""),
        ("On the last day, every key is returned.", ""),
        ("The office stands in Brevik.", ""),
    ),
    *changes(
        "de",
        MIETE,
        ("Die Kündigungsfrist beträgt sechs Monate.", "number"),
        ("Der Mieter muss nach dem 31. März schriftlich kündigen.", "direction"),
        ("Der Mieter muss vor dem 31. Mai schriftlich kündigen.", "date"),
        ("Der Mieter darf vor dem 31. März schriftlich kündigen.", "direction"),
        ("Die Kaution beträgt mindestens zwei Monatsmieten.", "direction"),
        ("Das Büro liegt in Oslo.", "absent"),
        ("Auf das Gerät gibt es keine Garantie.", "negation"),
        ("Der Vermieter darf die Wohnung nach 24 Stunden nicht betreten.", "negation"),
        ("Einige Schlüssel werden am letzten Tag übergeben.", "direction"),
        ("Die Gebühr beträgt 1.500 Franken.", "number"),
        ("Die Kündigungsfrist beträgt 3 Monate.", ""),
        ("Der Mieter muss bis zum 31. März schriftlich kündigen.", ""),
        ("Die Gebühr beträgt 1200 Franken.", ""),
        ("Das Gerät hat 5 Jahre Garantie.", ""),
        ("Die Kaution beträgt maximal zwei Monatsmieten.", ""),
        ("Am letzten Tag werden sämtliche Schlüssel übergeben.", ""),
    ),
    *changes(
        "fr",
        BAIL,
        ("La durée du préavis est de six mois.", "number"),
        ("Le locataire doit envoyer la lettre après le 31 mars.", "direction"),
        ("Le locataire doit envoyer la lettre avant le 31 mai.", "date"),
        ("Le locataire peut envoyer la lettre avant le 31 mars.", "direction"),
        ("Le dépôt de garantie est au minimum de deux loyers.", "direction"),
        ("Le bureau se trouve à Oslo.", "absent"),
        ("L'appareil n'a aucune garantie.", "negation"),
        ("Le bailleur ne peut pas entrer dans le logement après 24 heures.", "negation"),
        ("Les animaux ne sont pas admis dans la résidence.", "negation"),
        ("La durée du préavis est de 3 mois.", ""),
        ("L'appareil a une garantie de 5 ans.", ""),
        ("Le bailleur peut entrer dans le logement après un jour.", ""),
        ("La garantie de l'appareil est de cinq ans.", ""),
    ),
    *changes(
        "es",
        ALQUILER,
        ("El plazo de preaviso es de seis meses.", "number"),
        ("El inquilino debe enviar la carta después del 31 de marzo.", "direction"),
        ("El inquilino debe enviar la carta antes del 31 de mayo.", "date"),
        ("El inquilino puede enviar la carta antes del 31 de marzo.", "direction"),
        ("La fianza es como mínimo de dos mensualidades.", "direction"),
        ("La oficina está en Oslo.", "absent"),
        ("El aparato no tiene garantía.", "negation"),
        ("El propietario no puede entrar en la vivienda después de 24 horas.", "negation"),
        ("Las bicicletas se admiten en el tren nocturno.", "negation"),
        ("El plazo de preaviso es de 3 meses.", ""),
        ("El aparato tiene cinco años de garantía.", ""),
        ("En el tren nocturno no se admiten bicicletas.", ""),
        ("La garantía del aparato es de 5 años.", ""),
    ),
    *changes(
        "it",
        AFFITTO,
        ("Il periodo di preavviso è di sei mesi.", "number"),
        ("L'inquilino deve inviare la lettera dopo il 31 marzo.", "direction"),
        ("L'inquilino deve inviare la lettera prima del 31 maggio.", "date"),
        ("L'inquilino può inviare la lettera prima del 31 marzo.", "direction"),
        ("La cauzione è almeno di due mensilità.", "direction"),
        ("L'ufficio si trova a Oslo.", "absent"),
        ("L'apparecchio non ha garanzia.", "negation"),
        ("Gli animali non sono ammessi nella residenza.", "negation"),
        ("Il periodo di preavviso è di 3 mesi.", ""),
        ("L'apparecchio ha cinque anni di garanzia.", ""),
        ("Nella residenza gli animali sono ammessi.", ""),
    ),
    *changes(
        "zh",
        ZULIN,
        ("通知期为六个月。", "number"),
        ("租客必须在3月31日之后书面通知。", "direction"),
        ("租客必须在5月31日之前书面通知。", "date"),
        ("租客可以在3月31日之前书面通知。", "direction"),
        ("押金至少为两个月租金。", "direction"),
        ("茶园每年减少产量。", "direction"),
        ("参观者不可以免费入场。", "negation"),
        ("通知期为3个月。", ""),
        ("押金最多为2个月租金。", ""),
    ),
    *changes(
        "ar",
        IJAR,
        ("مدة الإشعار ستة أشهر.", "number"),
        ("يجب تقديم الطلب بعد نهاية السنة.", "direction"),
        ("المكتبة مغلقة كل يوم.", "direction"),
        ("يمكن استعارة تسعة كتب لمدة ثلاثة أسابيع.", "absent"),
        ("لا يمكن استعارة خمسة كتب لمدة ثلاثة أسابيع.", "negation"),
        ("مدة الإشعار 3 أشهر.", ""),
        ("يمكن استعارة 5 كتب لمدة ثلاثة أسابيع.", ""),
    ),
    *changes(
        "en",
        POLICY,
        ("Water damage from burst pipes is not covered.", "negation"),
        ("Claims are not reported within 14 days.", "negation"),
        ("The deductible is 500 francs.", "number"),
        ("The deductible is 14 francs.", "number"),
        ("Burst pipes are not an insured cause of damage.", "negation"),
        ("Theft from a locked car is never covered.", "negation"),
        ("Claims are to be reported in no more than 14 days.", ""),
        ("Damage caused by burst pipes is insured up to 5000 francs.", ""),
        ("The deductible is not more than 200 francs.", ""),
        ("I am not sure, but the deductible is 200 francs.", ""),
    ),
    *changes(
        "en",
        HOUSE_RULES,
        ("Dogs are not allowed in the flat.", ""),
        ("The ferry does not run in winter.", ""),
        ("Dogs are allowed in the flat.", "direction"),
    ),
    *changes(
        "de",
        DECKUNG,
        ("Wasserschäden durch geplatzte Rohre sind nicht gedeckt.", "negation"),
        ("Der Selbstbehalt beträgt 500 Franken.", "number"),
        ("Der Selbstbehalt beträgt 14 Franken.", "number"),
        ("Geplatzte Rohre sind keine gedeckte Ursache.", "negation"),
        ("Schäden müssen innert 14 Tagen gemeldet werden.", ""),
        ("Haustiere sind nicht erlaubt.", ""),
        ("Der Selbstbehalt beträgt nicht mehr als 200 Franken.", ""),
        ("Ich bin nicht sicher, aber der Selbstbehalt beträgt 200 Franken.", ""),
    ),
    *changes(
        "fr",
        COUVERTURE,
        ("Les dégâts d'eau dus aux conduites ne sont pas couverts.", "negation"),
        ("La franchise est de 500 francs.", "number"),
        ("La franchise est de 14 francs.", "number"),
        ("Le sinistre n'est pas annoncé dans les 14 jours.", "negation"),
        ("Les chiens ne sont pas admis dans l'immeuble.", ""),
        ("La franchise ne dépasse pas 200 francs.", ""),
    ),
    *changes(
        "es",
        COBERTURA,
        ("Los daños de agua por tuberías no están cubiertos.", "negation"),
        ("La franquicia es de 500 francos.", "number"),
        ("La franquicia es de 14 francos.", "number"),
        ("El siniestro no se comunica en 14 días.", "negation"),
        ("Los perros no se admiten en el edificio.", ""),
    ),
    *changes(
        "it",
        COPERTURA,
        ("I danni d'acqua dovuti alle tubature non sono coperti.", "negation"),
        ("La franchigia è di 500 franchi.", "number"),
        ("Il sinistro non va comunicato entro 14 giorni.", "negation"),
        ("I cani non sono ammessi nell'edificio.", ""),
    ),
    *changes(
        "zh",
        BAOXIAN,
        ("水管破裂造成的损失不赔偿。", "negation"),
        ("免赔额为500元。", "number"),
        ("损失不须在14天内报告。", "negation"),
        ("公寓内不许养狗。", ""),
    ),
    *changes(
        "en",
        TERMS,
        ("Plan B is cheaper than Plan A.", "direction"),
        ("Plan A costs more than Plan B.", "direction"),
        ("Plan A is more expensive than Plan B.", "direction"),
        ("Plan A is cheaper than Plan B.", ""),
        ("Plan B costs more than Plan A.", ""),
        ("The warranty lasts five years from delivery.", "date"),
        ("The warranty lasts five years after delivery.", "date"),
        ("The warranty lasts five years from the date of purchase.", ""),
        ("The warranty lasts five years after buying.", ""),
        ("The parcel is paid ten days after arrival.", ""),
        ("The parcel is paid ten days after the inspection.", "date"),
        ("The tenant receives at least two keys.", "direction"),
        ("The tenant receives more than two keys.", "direction"),
        ("The tenant receives two keys.", ""),
        ("The fine is at most 500 francs.", ""),
    ),
    *changes(
        "de",
        BEDINGUNGEN,
        ("Tarif B ist billiger als Tarif A.", "direction"),
        ("Tarif A ist teurer als Tarif B.", "direction"),
        ("Tarif A ist billiger als Tarif B.", ""),
        ("Die Garantie beträgt fünf Jahre ab Lieferung.", "date"),
        ("Die Garantie beträgt fünf Jahre ab dem Kaufdatum.", ""),
        ("Der Mieter erhält mindestens zwei Schlüssel.", "direction"),
        ("Der Mieter erhält zwei Schlüssel.", ""),
    ),
    *changes(
        "fr",
        CONDITIONS,
        ("Le plan B est moins cher que le plan A.", "direction"),
        ("Le plan A est moins cher que le plan B.", ""),
        ("La garantie est de cinq ans après la livraison.", "date"),
        ("La garantie est de cinq ans depuis l'acquisition.", ""),
        ("Le locataire reçoit au moins deux clés.", "direction"),
        ("Le locataire reçoit deux clés.", ""),
    ),
    *changes(
        "es",
        CONDICIONES,
        ("El plan B es más barato que el plan A.", "direction"),
        ("El plan A es más barato que el plan B.", ""),
        ("La garantía es de cinco años desde la entrega.", "date"),
        ("La garantía es de cinco años desde la fecha de compra.", ""),
        ("El inquilino recibe al menos dos llaves.", "direction"),
        ("El inquilino recibe dos llaves.", ""),
    ),
    *changes(
        "it",
        CONDIZIONI,
        ("Il piano B è meno caro del piano A.", "direction"),
        ("Il piano A è meno caro del piano B.", ""),
        ("La garanzia è di cinque anni dall'acquisto.", "date"),
        ("La garanzia è di cinque anni dalla consegna.", ""),
        ("Il locatario riceve almeno due chiavi.", "direction"),
    ),
    *changes(
        "en",
        "Courtesy cars are lent free of charge, but for no longer than 21 days. The rent may rise once in twelve months.",
        ("The courtesy car is lent free of charge for no longer than 21 days.", ""),
        ("Courtesy cars are lent for at least 21 days.", "direction"),
        ("The rent may rise twice in twelve months.", "direction"),
        ("The rent may rise once in twelve months.", ""),
    ),
]
