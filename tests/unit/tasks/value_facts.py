"""Facts in six languages for the tests of an object's values: sentences of each kind, each with a right and a wrong value."""

from typing import NamedTuple


class Fact(NamedTuple):
    """A sentence of a source with the name of a value that it states, the value, and one that it does not state."""

    name: str
    sentence: str
    right: object
    wrong: object


NUMBERS: dict[str, list[Fact]] = {
    "en": [
        Fact("tenant_months", "The tenant's notice period is three months.", 3, 99),
        Fact("landlord_months", "The landlord must give notice six months before.", 6, 7),
        Fact("rise_percent", "The rent may rise by 4% at most.", 4, 40),
        Fact("rise_share", "A late rise is capped at 2.5 per cent.", 0.025, 0.25),
        Fact("rent", "The monthly rent is 1,250.50 euros.", 1250.5, 1250),
        Fact("area", "The flat measures 72 square metres.", 72, 720),
        Fact("budget", "The repair fund holds 1.2 million euros.", 1_200_000, 1_200),
        Fact("warranty_months", "The warranty runs for two years.", 24, 12),
    ],
    "de": [
        Fact("tenant_months", "Die Kündigungsfrist des Mieters beträgt drei Monate.", 3, 99),
        Fact("rise_share", "Eine späte Erhöhung ist auf 2,5 Prozent begrenzt.", 0.025, 0.25),
        Fact("rent", "Die Monatsmiete beträgt 1.250,50 Euro.", 1250.5, 1250),
        Fact("budget", "Die Rücklage enthält 1,2 Millionen Euro.", 1_200_000, 1_200),
    ],
    "es": [
        Fact("tenant_months", "El plazo de preaviso del inquilino es de tres meses.", 3, 99),
        Fact("rise_share", "Una subida tardía se limita al 2,5 por ciento.", 0.025, 0.25),
        Fact("rent", "La renta mensual es de 1.250,50 euros.", 1250.5, 1250),
        Fact("budget", "El fondo de reparaciones tiene 1,2 millones de euros.", 1_200_000, 1_200),
    ],
    "fr": [
        Fact("tenant_months", "Le préavis du locataire est de trois mois.", 3, 99),
        Fact("rise_share", "Une hausse tardive est limitée à 2,5 pour cent.", 0.025, 0.25),
        Fact("rent", "Le loyer mensuel est de 1 250,50 euros.", 1250.5, 1250),
        Fact("budget", "Le fonds de travaux contient 1,2 million d'euros.", 1_200_000, 1_200),
    ],
    "zh": [
        Fact("tenant_months", "承租人的通知期为三个月。", 3, 99),
        Fact("rise_share", "逾期上涨的幅度限于2.5%。", 0.025, 0.25),
        Fact("rent", "每月租金为1,250.50元。", 1250.5, 1250),
        Fact("budget", "维修基金共有120万元。", 1_200_000, 1_200),
    ],
    "ar": [
        Fact("tenant_months", "مدة إشعار المستأجر ثلاثة أشهر.", 3, 99),
        Fact("rise_share", "الزيادة المتأخرة محدودة بنسبة 2.5%.", 0.025, 0.25),
        Fact("rent", "الأجرة الشهرية 1250.50 يورو.", 1250.5, 1250),
        Fact("budget", "في صندوق الصيانة 1200000 يورو.", 1_200_000, 1_200),
    ],
}

DATES: dict[str, list[Fact]] = {
    "en": [
        Fact("start", "The lease begins on 1 March 2024.", "2024-03-01", "2024-03-10"),
        Fact("end", "It ends on February 28, 2027.", "2027-02-28", "2028-02-28"),
        Fact("signed", "Both sides signed on 2024-01-15.", "2024-01-15", "2024-01-16"),
        Fact("notice", "Notice was given on 30 June 2026.", "2026-06-30", "2026-07-30"),
        Fact("payment", "The first payment was due on 5 March 2024.", "2024-03-05", "2024-05-03"),
    ],
    "de": [
        Fact("start", "Das Mietverhältnis beginnt am 1. März 2024.", "2024-03-01", "2024-03-10"),
        Fact("signed", "Beide Seiten unterschrieben am 15.01.2024.", "2024-01-15", "2024-01-16"),
    ],
    "es": [
        Fact("start", "El contrato empieza el 1 de marzo de 2024.", "2024-03-01", "2024-03-10"),
        Fact("signed", "Ambas partes firmaron el 15/01/2024.", "2024-01-15", "2024-01-16"),
    ],
    "fr": [
        Fact("start", "Le bail commence le 1 mars 2024.", "2024-03-01", "2024-03-10"),
        Fact("signed", "Les deux parties ont signé le 15/01/2024.", "2024-01-15", "2024-01-16"),
    ],
    "zh": [
        Fact("start", "租约自2024年3月1日起生效。", "2024-03-01", "2024-03-10"),
        Fact("signed", "双方于2024年1月15日签字。", "2024-01-15", "2024-01-16"),
    ],
    "ar": [
        Fact("start", "يبدأ العقد في 1 مارس 2024.", "2024-03-01", "2024-03-10"),
        Fact("signed", "وقع الطرفان في 15/01/2024.", "2024-01-15", "2024-01-16"),
    ],
}

TEXTS: dict[str, list[Fact]] = {
    "en": [
        Fact("tenant", "The tenant is Dr. Anna Meyer.", "Anna Meyer", "Anna Becker"),
        Fact("street", "Its address is Harbour Road 12.", "Harbour Road 12", "Harbour Road 21"),
        Fact("manager", "Mr. Olsen manages the house.", "Olsen", "Hansen"),
        Fact("account", "The account number is LU28 0019 4006.", "LU28 0019 4006", "LU28 0019 4007"),
    ],
    "de": [
        Fact("tenant", "Mieterin ist Dr. Anna Meyer.", "Anna Meyer", "Anna Becker"),
        Fact("street", "Die Anschrift lautet Hafenstraße 12.", "Hafenstraße 12", "Hafenstraße 21"),
    ],
    "es": [
        Fact("tenant", "La inquilina es la Dra. Ana Molina.", "Ana Molina", "Ana Becerra"),
        Fact("street", "La dirección es Calle del Puerto 12.", "Calle del Puerto 12", "Calle del Puerto 21"),
    ],
    "fr": [
        Fact("tenant", "La locataire est le Dr Anne Meunier.", "Anne Meunier", "Anne Boucher"),
        Fact("street", "L'adresse est 12 rue du Port.", "12 rue du Port", "21 rue du Port"),
    ],
    "zh": [
        Fact("tenant", "承租人是王小明。", "王小明", "李小龙"),
        Fact("street", "地址为海港路12号。", "海港路12号", "海港路21号"),
    ],
    "ar": [
        Fact("tenant", "المستأجرة هي الدكتورة هناء منصور.", "هناء منصور", "هناء بركات"),
        Fact("street", "العنوان هو شارع الميناء 12.", "شارع الميناء 12", "شارع الميناء 21"),
    ],
}

CHOICES: dict[str, list[Fact]] = {
    "en": [
        Fact("interval", "The rent is paid monthly.", "monthly", "quarterly"),
        Fact("payer", "Repairs are paid by the landlord.", "landlord", "tenant"),
        Fact("form", "Notice must be given in writing.", "writing", "email"),
        Fact("currency", "Rent is due in euros.", "euros", "dollars"),
    ],
    "de": [
        Fact("interval", "Die Miete wird monatlich gezahlt.", "monatlich", "jährlich"),
        Fact("payer", "Reparaturen zahlt der Vermieter.", "Vermieter", "Mieter"),
    ],
    "es": [
        Fact("interval", "La renta se paga mensualmente.", "mensualmente", "anualmente"),
        Fact("payer", "Las reparaciones las paga el arrendador.", "arrendador", "inquilino"),
    ],
    "fr": [
        Fact("interval", "Le loyer est payé mensuellement.", "mensuellement", "annuellement"),
        Fact("payer", "Les réparations sont payées par le bailleur.", "bailleur", "locataire"),
    ],
    "zh": [
        Fact("interval", "租金按月支付。", "按月", "按年"),
        Fact("payer", "维修费由出租人承担。", "出租人", "承租人"),
    ],
    "ar": [
        Fact("interval", "تدفع الأجرة شهريا.", "شهريا", "سنويا"),
        Fact("payer", "يدفع المؤجر تكاليف الإصلاح.", "المؤجر", "المستأجر"),
    ],
}

BOOLEANS: dict[str, list[Fact]] = {
    "en": [
        Fact("pets_allowed", "Pets are allowed in the flat.", True, False),
        Fact("smoking_allowed", "Smoking is not allowed anywhere in the house.", False, True),
        Fact("furnished", "The flat is furnished.", True, False),
        Fact("heating_included", "Heating is never included in the rent.", False, True),
    ],
    "de": [
        Fact("haustiere_erlaubt", "Haustiere sind in der Wohnung erlaubt.", True, False),
        Fact("rauchen_erlaubt", "Rauchen ist im Haus nicht erlaubt.", False, True),
    ],
    "es": [
        Fact("mascotas_permitidas", "Las mascotas están permitidas en el piso.", True, False),
        Fact("fumar_permitido", "Fumar no está permitido en la casa.", False, True),
    ],
    "fr": [
        Fact("animaux_admis", "Les animaux sont admis dans l'appartement.", True, False),
        Fact("fumer_permis", "Il n'est pas permis de fumer dans la maison.", False, True),
    ],
    "zh": [
        Fact("允许宠物", "房屋内允许养宠物。", True, False),
        Fact("允许吸烟", "屋内不允许吸烟。", False, True),
    ],
    "ar": [
        Fact("الحيوانات_مسموحة", "الحيوانات مسموحة في الشقة.", True, False),
        Fact("التدخين_مسموح", "التدخين غير مسموح في المنزل.", False, True),
    ],
}

LANGUAGES = tuple(NUMBERS)
