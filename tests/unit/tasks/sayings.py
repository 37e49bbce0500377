"""Sentences of answers by kind and language: what must be checked, split, looked up or let be, and what it is about."""
# ruff: noqa: RUF001 - text of other scripts is meant

from dataclasses import dataclass


@dataclass(frozen=True)
class Sayings:
    """The sentences of one language, about one source.

    Attributes:
        source: the only source.
        question: the question that the answers are to.
        wrong: say what the source does not, in a form that looks like no statement.
        right: the same forms, and say what the source does.
        nothing: say nothing that could be checked.
        compound: a sentence and its claims.
        whole: sentences that are one claim.
        denied: deny what the source says.
        absent: deny what the source does not say.
        refusals: whole answers that only refuse.
        inventions: whole answers that refuse and state a fact all the same.
        remarks: say only what the answer is, or how to go on.
        listed: items whose number is only their place.
    """

    source: str
    question: str
    wrong: tuple[str, ...]
    right: tuple[str, ...]
    nothing: tuple[str, ...]
    compound: tuple[tuple[str, ...], ...]
    whole: tuple[str, ...]
    denied: tuple[str, ...]
    absent: tuple[str, ...]
    refusals: tuple[str, ...]
    inventions: tuple[str, ...]
    remarks: tuple[str, ...]
    listed: tuple[str, ...]


ENGLISH = Sayings(
    source=(
        "The rent may rise by at most 4 % a year. The deposit is three monthly rents. The landlord Morgan Hale must give"
        " notice six months in advance. Dogs require the written consent of the landlord. The office in Brevik opens at 9."
    ),
    question="How often may the rent rise?",
    wrong=(
        "Of course the gardener earns 99% of the lottery every week [1].",
        "Great Britain left the union in 1850 [1].",
        "Dear fuel cost the company 900 million dollars [1].",
        "Here is what the sources say: the swimming pool holds ten thousand penguins [1].",
        "**The swimming pool holds 500 penguins**",
        "## Penguins are fed at midnight by the janitor",
        "Did you know that the swimming pool holds ten thousand penguins?",
        "The swimming pool holds 500 penguins:",
        "Sure, penguins live in the swimming pool.",
        "Hello, the swimming pool is full of penguins.",
        "I hope you know that penguins live in the swimming pool.",
        "Isn't it true that the janitor won the lottery in 1999?",
    ),
    right=(
        "Of course the rent may rise by at most 4 % a year [1].",
        "Here is what the sources say: the deposit is three monthly rents [1].",
        "**The deposit is three monthly rents [1]**",
        "## Dogs require the written consent of the landlord",
        "Did you know that dogs require the written consent of the landlord [1]?",
        "The deposit is three monthly rents [1]:",
        "Sure, the office in Brevik opens at 9 [1].",
        "According to the sources, the landlord must give notice six months in advance [1].",
        "Please note that the rent may rise by at most 4 % a year [1].",
    ),
    nothing=(
        "Of course.",
        "Thank you for your question.",
        "Here is the answer:",
        "Here is what the sources say:",
        "## Rent",
        "**Deposit and notice**",
        "The following applies:",
        "How often may the rent rise?",
        "I hope this helps!",
        "Let me know if you have any further questions.",
        "Would you like to know more?",
    ),
    compound=(
        (
            "The rent rises by 4 %, and the deposit is ten monthly rents [1].",
            "The rent rises by 4 %",
            "the deposit is ten monthly rents [1].",
        ),
        (
            "The rent may rise by 4 %, but dogs are forbidden [1].",
            "The rent may rise by 4 %",
            "dogs are forbidden [1].",
        ),
        (
            "The deposit is three monthly rents; the pool is free.",
            "The deposit is three monthly rents",
            "the pool is free.",
        ),
        (
            "The deposit is three monthly rents [1] and the landlord must pay for the pool [2].",
            "The deposit is three monthly rents [1]",
            "the landlord must pay for the pool [2].",
        ),
        (
            "The office opens at 9, while the pool opens at 6.",
            "The office opens at 9",
            "the pool opens at 6.",
        ),
        (
            "- Dogs require consent, whereas cats are allowed.",
            "- Dogs require consent",
            "cats are allowed.",
        ),
        (
            "The rent may rise once, the deposit is three monthly rents, and the office opens at 9.",
            "The rent may rise once",
            "the deposit is three monthly rents",
            "the office opens at 9.",
        ),
        (
            "Here is what the sources say: the deposit is ten monthly rents, and it is due at once.",
            "Here is what the sources say:",
            "the deposit is ten monthly rents",
            "it is due at once.",
        ),
    ),
    whole=(
        "The landlord must inform the tenant, the bank and the insurer.",
        "If the rent rises by 4 %, and the tenant is late, the landlord may give notice.",
        "Dogs, cats, and the keeping of birds require consent.",
        "The dog and the cat are allowed.",
        "The landlord, who owns the house and the garden, must give notice.",
        "The tenant must pay the rent, the deposit, and all fees that are due.",
        "When the contract ends, the deposit is returned.",
        "In 2020, the rent was 500 EUR.",
        "The rent is 500 EUR: it is due on the first day.",
    ),
    denied=(
        "There is no evidence that dogs require the consent of the landlord.",
        "The sources do not say that the rent may rise by at most 4 % a year.",
        "Nothing indicates that the deposit is three monthly rents.",
        "There is no information that the office in Brevik opens at 9.",
        "None of the documents mention that dogs require the written consent of the landlord.",
        "The context does not state that the landlord must give notice six months in advance.",
        "It is not stated in the sources that the deposit is three monthly rents.",
        "The sources do not mention whether dogs require the consent of the landlord.",
        "There is no indication that the landlord must give notice six months in advance.",
    ),
    absent=(
        "There is no evidence that penguins live in the pool.",
        "The sources do not say that the pool opens at noon.",
        "Nothing indicates that the janitor won the lottery.",
        "There is no information about parking.",
        "None of the documents mention this.",
        "The context does not state whether parrots are allowed.",
        "It is not stated in the sources who pays for the lift.",
        "The sources do not say how often the rent may rise.",
        "The sources do not mention a swimming pool.",
    ),
    refusals=(
        "I am sorry, but I cannot answer this question based on the available information.",
        "I cannot answer this question based on the available information.",
        (
            "I don't have any sources to answer this question.\n\nQuestion: How often may the rent rise?\n\nThe provided"
            " sources don't contain information relevant to this question.\nPlease provide additional context or rephrase"
            " your question."
        ),
        (
            "I don't have enough information in our insurance documents to answer your question. Please contact our customer"
            " service team for assistance, or try rephrasing your question to be more specific about the insurance product"
            " you're interested in."
        ),
        "Unfortunately, the provided context does not contain the answer to this question.",
        "I'm sorry, but the sources do not contain enough information to answer your question.",
        "Based on the given documents, I am unable to determine the answer.",
        "The sources do not provide any information on this topic. Please consult the landlord.",
        "I'm afraid I can't answer that from the sources provided.",
        "There is not enough information in the documents to answer the question.",
    ),
    inventions=(
        "I am sorry, but I cannot answer this question. The swimming pool holds 500 penguins.",
        "I am sorry, but the swimming pool holds ten thousand penguins.",
        "I cannot answer this question, the pool is full of penguins.",
        "The sources do not say, but the janitor won the lottery in 1999.",
        "I don't know; the swimming pool is full of penguins.",
        "I am sorry to say that the swimming pool is full of penguins.",
        "I cannot answer this based on the sources. Please call Port Lune on 555 1234.",
        "There is no information in the sources, and the janitor won the lottery.",
        "I cannot answer this question. **The pool holds 500 penguins**",
    ),
    remarks=(
        "Please note that this is not legal advice.",
        "Note that this answer is for general information only and does not constitute legal advice.",
        "This is not a substitute for professional legal advice.",
        "Please consult a lawyer for legal advice.",
        "This answer is based only on the sources provided.",
        "The information above is based on the provided documents.",
        "Please let me know if you need further information.",
        "I hope this answers your question.",
        "If you have any further questions, feel free to ask.",
    ),
    listed=(
        "2. Landlord: six months in advance",
        "2) The deposit is three monthly rents.",
        "(7) Dogs require the written consent of the landlord.",
        "7. **Dogs** require the written consent of the landlord.",
        "## 7. Dogs require the written consent of the landlord",
        "**7. Dogs require the written consent of the landlord**",
        "Step 7: Dogs require the written consent of the landlord.",
        "2.7. Dogs require the written consent of the landlord.",
        "- 7. Dogs require the written consent of the landlord.",
    ),
)

GERMAN = Sayings(
    source=(
        "Die Miete darf höchstens um 4 % im Jahr steigen. Die Kaution beträgt drei Monatsmieten. Der Vermieter Morgan"
        " Hale muss sechs Monate vorher kündigen. Hunde brauchen die schriftliche Zustimmung des Vermieters. Das Büro in"
        " Brevik öffnet um 9 Uhr."
    ),
    question="Wie oft darf die Miete steigen?",
    wrong=(
        "Natürlich gewinnt der Gärtner jede Woche 99 % der Lotterie [1].",
        "Gerne füttert der Hausmeister 500 Pinguine im Schwimmbad [1].",
        "Hallo, das Schwimmbad ist voller Pinguine.",
        "Das sagen die Quellen: Im Schwimmbad leben zehn Pinguine [1].",
        "**Im Schwimmbad leben 500 Pinguine**",
        "## Pinguine sind um Mitternacht im Schwimmbad",
        "Wussten Sie, dass im Schwimmbad zehn Pinguine leben?",
        "Im Schwimmbad leben 500 Pinguine:",
        "Ja, im Schwimmbad leben Pinguine.",
        "Ich hoffe, Sie wissen, dass im Schwimmbad Pinguine leben.",
        "Stimmt es nicht, dass der Hausmeister 1999 im Lotto gewann?",
    ),
    right=(
        "Natürlich darf die Miete höchstens um 4 % im Jahr steigen [1].",
        "Das sagen die Quellen: Die Kaution beträgt drei Monatsmieten [1].",
        "**Die Kaution beträgt drei Monatsmieten [1]**",
        "## Hunde brauchen die schriftliche Zustimmung des Vermieters",
        "Wussten Sie, dass Hunde die schriftliche Zustimmung des Vermieters brauchen [1]?",
        "Die Kaution beträgt drei Monatsmieten [1]:",
        "Ja, das Büro in Brevik öffnet um 9 Uhr [1].",
        "Laut den Quellen muss der Vermieter sechs Monate vorher kündigen [1].",
        "Bitte beachten Sie, dass die Miete höchstens um 4 % im Jahr steigen darf [1].",
    ),
    nothing=(
        "Natürlich!",
        "Vielen Dank für Ihre Frage.",
        "Hier ist die Antwort:",
        "Das sagen die Quellen:",
        "## Miete",
        "**Kaution und Kündigung**",
        "Es gilt Folgendes:",
        "Wie oft darf die Miete steigen?",
        "Ich hoffe, das hilft Ihnen weiter!",
        "Lassen Sie mich wissen, wenn Sie weitere Fragen haben.",
        "Möchten Sie mehr wissen?",
    ),
    compound=(
        (
            "Die Miete steigt um 4 %, und die Kaution beträgt zehn Monatsmieten [1].",
            "Die Miete steigt um 4 %",
            "die Kaution beträgt zehn Monatsmieten [1].",
        ),
        (
            "Die Miete darf um 4 % steigen, aber Hunde sind verboten [1].",
            "Die Miete darf um 4 % steigen",
            "Hunde sind verboten [1].",
        ),
        (
            "Die Kaution beträgt drei Monatsmieten; das Schwimmbad ist frei.",
            "Die Kaution beträgt drei Monatsmieten",
            "das Schwimmbad ist frei.",
        ),
        (
            "Die Kaution beträgt drei Monatsmieten [1] und der Vermieter muss das Schwimmbad zahlen [2].",
            "Die Kaution beträgt drei Monatsmieten [1]",
            "der Vermieter muss das Schwimmbad zahlen [2].",
        ),
        (
            "Das Büro öffnet um 9 Uhr und das Schwimmbad ist geschlossen.",
            "Das Büro öffnet um 9 Uhr",
            "das Schwimmbad ist geschlossen.",
        ),
        (
            "- Hunde brauchen Zustimmung, doch Katzen sind erlaubt.",
            "- Hunde brauchen Zustimmung",
            "Katzen sind erlaubt.",
        ),
        (
            "Die Miete darf einmal steigen; die Kaution beträgt drei Monatsmieten, und das Büro ist offen.",
            "Die Miete darf einmal steigen",
            "die Kaution beträgt drei Monatsmieten",
            "das Büro ist offen.",
        ),
        (
            "Das sagen die Quellen: Die Kaution beträgt zehn Monatsmieten, und sie ist sofort fällig.",
            "Das sagen die Quellen:",
            "Die Kaution beträgt zehn Monatsmieten",
            "sie ist sofort fällig.",
        ),
    ),
    whole=(
        "Der Vermieter muss den Mieter, die Bank und die Versicherung informieren.",
        "Wenn die Miete um 4 % steigt, und der Mieter säumig ist, darf der Vermieter kündigen.",
        "Hunde, Katzen und das Halten von Vögeln brauchen eine Zustimmung.",
        "Der Hund und die Katze sind erlaubt.",
        "Der Vermieter, der das Haus und den Garten besitzt, muss kündigen.",
        "Es gilt eine Frist, die drei Monate beträgt.",
        "Der Mieter muss die Miete, die Kaution und alle Gebühren zahlen.",
        "Endet der Vertrag, wird die Kaution zurückgezahlt.",
        "Die Miete beträgt 500 EUR: Sie ist am ersten Tag fällig.",
    ),
    denied=(
        "Es gibt keine Hinweise darauf, dass Hunde die Zustimmung des Vermieters brauchen.",
        "Die Quellen sagen nicht, dass die Miete höchstens um 4 % im Jahr steigen darf.",
        "Nichts deutet darauf hin, dass die Kaution drei Monatsmieten beträgt.",
        "Es gibt keine Informationen darüber, dass das Büro in Brevik um 9 Uhr öffnet.",
        "In den Quellen wird nicht erwähnt, dass Hunde die schriftliche Zustimmung des Vermieters brauchen.",
        "Der Kontext sagt nicht, dass der Vermieter sechs Monate vorher kündigen muss.",
        "Aus den Quellen geht nicht hervor, dass die Kaution drei Monatsmieten beträgt.",
        "Die Quellen nennen nicht, ob Hunde die Zustimmung des Vermieters brauchen.",
        "Es gibt keinen Beleg dafür, dass der Vermieter sechs Monate vorher kündigen muss.",
    ),
    absent=(
        "Es gibt keine Hinweise darauf, dass Pinguine im Schwimmbad leben.",
        "Die Quellen sagen nicht, dass das Schwimmbad mittags öffnet.",
        "Nichts deutet darauf hin, dass der Hausmeister im Lotto gewann.",
        "Es gibt keine Informationen über Parkplätze.",
        "Die Quellen enthalten dazu keine Informationen.",
        "Der Kontext sagt nicht, ob Papageien erlaubt sind.",
        "Aus den Quellen geht nicht hervor, wer den Aufzug bezahlt.",
        "Die Quellen sagen nicht, wie oft die Miete steigen darf.",
        "Die Quellen erwähnen kein Schwimmbad.",
    ),
    refusals=(
        "Es tut mir leid, aber ich kann diese Frage anhand der verfügbaren Informationen nicht beantworten.",
        "Ich kann diese Frage anhand der verfügbaren Informationen nicht beantworten.",
        (
            "Ich habe keine Quellen, um diese Frage zu beantworten.\n\nFrage: Wie oft darf die Miete steigen?\n\nDie"
            " angegebenen Quellen enthalten keine Informationen zu dieser Frage.\nBitte geben Sie mehr Kontext an oder"
            " formulieren Sie Ihre Frage um."
        ),
        (
            "Ich habe in unseren Versicherungsunterlagen nicht genügend Informationen, um Ihre Frage zu beantworten. Bitte"
            " wenden Sie sich an unseren Kundendienst, oder formulieren Sie Ihre Frage genauer."
        ),
        "Leider enthält der angegebene Kontext keine Antwort auf diese Frage.",
        "Entschuldigung, aber die Quellen enthalten nicht genügend Informationen, um Ihre Frage zu beantworten.",
        "Auf Grundlage der vorliegenden Dokumente kann ich die Frage nicht beantworten.",
        "Die Quellen geben zu diesem Thema keine Auskunft. Bitte fragen Sie den Vermieter.",
        "Ich bedaure, diese Frage kann ich nicht beantworten.",
        "In den Dokumenten stehen nicht genügend Informationen, um die Frage zu beantworten.",
    ),
    inventions=(
        "Es tut mir leid, aber ich kann diese Frage nicht beantworten. Im Schwimmbad leben 500 Pinguine.",
        "Es tut mir leid, aber im Schwimmbad leben zehn Pinguine.",
        "Ich kann diese Frage nicht beantworten; das Schwimmbad ist voller Pinguine.",
        "Die Quellen sagen es nicht, aber der Hausmeister gewann 1999 im Lotto.",
        "Ich weiß es nicht, und das Schwimmbad ist voller Pinguine.",
        "Es tut mir leid zu sagen, dass im Schwimmbad Pinguine leben.",
        "Ich kann das anhand der Quellen nicht beantworten. Bitte rufen Sie 555 1234 an.",
        "Die Quellen enthalten keine Informationen, und der Hausmeister hat im Lotto gewonnen.",
        "Ich kann diese Frage nicht beantworten. **Im Schwimmbad leben 500 Pinguine**",
    ),
    remarks=(
        "Bitte beachten Sie, dass dies keine Rechtsberatung ist.",
        "Diese Antwort dient nur der allgemeinen Information und stellt keine Rechtsberatung dar.",
        "Dies ersetzt keine professionelle Rechtsberatung.",
        "Bitte wenden Sie sich für eine Rechtsberatung an einen Anwalt.",
        "Diese Antwort beruht nur auf den angegebenen Quellen.",
        "Die obigen Informationen beruhen auf den vorliegenden Dokumenten.",
        "Lassen Sie mich wissen, wenn Sie weitere Informationen brauchen.",
        "Ich hoffe, das beantwortet Ihre Frage.",
        "Wenn Sie weitere Fragen haben, fragen Sie gerne.",
    ),
    listed=(
        "2. Vermieter: sechs Monate vorher",
        "2) Die Kaution beträgt drei Monatsmieten.",
        "(7) Hunde brauchen die schriftliche Zustimmung des Vermieters.",
        "7. **Hunde** brauchen die schriftliche Zustimmung des Vermieters.",
        "## 7. Hunde brauchen die schriftliche Zustimmung des Vermieters",
        "**7. Hunde brauchen die schriftliche Zustimmung des Vermieters**",
        "Schritt 7: Hunde brauchen die schriftliche Zustimmung des Vermieters.",
        "2.7. Hunde brauchen die schriftliche Zustimmung des Vermieters.",
        "- 7. Hunde brauchen die schriftliche Zustimmung des Vermieters.",
    ),
)

SPANISH = Sayings(
    source=(
        "El alquiler puede subir como máximo un 4 % al año. La fianza es de tres mensualidades. El arrendador Morgan Hale"
        " debe avisar con seis meses de antelación. Los perros requieren el consentimiento escrito del arrendador. La"
        " oficina de Brevik abre a las 9."
    ),
    question="¿Cuántas veces puede subir el alquiler?",
    wrong=(
        "Por supuesto el jardinero gana el 99 % de la lotería cada semana [1].",
        "Claro que el conserje alimenta a 500 pingüinos [1].",
        "Hola, la piscina está llena de pingüinos.",
        "Esto es lo que dicen las fuentes: la piscina tiene diez mil pingüinos [1].",
        "**La piscina tiene 500 pingüinos**",
        "## Los pingüinos están en la piscina a medianoche",
        "¿Sabía que la piscina tiene diez mil pingüinos?",
        "La piscina tiene 500 pingüinos:",
        "Sí, la piscina está llena de pingüinos.",
        "Espero que sepa que los pingüinos viven en la piscina.",
        "¿No es cierto que el conserje ganó la lotería en 1999?",
    ),
    right=(
        "Por supuesto el alquiler puede subir como máximo un 4 % al año [1].",
        "Esto es lo que dicen las fuentes: la fianza es de tres mensualidades [1].",
        "**La fianza es de tres mensualidades [1]**",
        "## Los perros requieren el consentimiento escrito del arrendador",
        "¿Sabía que los perros requieren el consentimiento escrito del arrendador [1]?",
        "La fianza es de tres mensualidades [1]:",
        "Sí, la oficina de Brevik abre a las 9 [1].",
        "Según las fuentes, el arrendador debe avisar con seis meses de antelación [1].",
        "Tenga en cuenta que el alquiler puede subir como máximo un 4 % al año [1].",
    ),
    nothing=(
        "¡Por supuesto!",
        "Gracias por su pregunta.",
        "Aquí está la respuesta:",
        "Esto es lo que dicen las fuentes:",
        "## Alquiler",
        "**Fianza y preaviso**",
        "Se aplica lo siguiente:",
        "¿Cuántas veces puede subir el alquiler?",
        "¡Espero que esto le ayude!",
        "Hágame saber si tiene más preguntas.",
        "¿Desea saber más?",
    ),
    compound=(
        (
            "El alquiler sube un 4 %, y la fianza es de diez mensualidades [1].",
            "El alquiler sube un 4 %",
            "la fianza es de diez mensualidades [1].",
        ),
        (
            "El alquiler puede subir un 4 %, pero los perros están prohibidos [1].",
            "El alquiler puede subir un 4 %",
            "los perros están prohibidos [1].",
        ),
        (
            "La fianza es de tres mensualidades; la piscina es gratis.",
            "La fianza es de tres mensualidades",
            "la piscina es gratis.",
        ),
        (
            "La fianza es de tres mensualidades [1] y el arrendador debe pagar la piscina [2].",
            "La fianza es de tres mensualidades [1]",
            "el arrendador debe pagar la piscina [2].",
        ),
        (
            "La oficina está abierta, mientras que la piscina está cerrada.",
            "La oficina está abierta",
            "la piscina está cerrada.",
        ),
        (
            "- Los perros requieren permiso, pero los gatos están permitidos.",
            "- Los perros requieren permiso",
            "los gatos están permitidos.",
        ),
        (
            "El alquiler puede subir una vez, la fianza es de tres mensualidades, y la oficina está abierta.",
            "El alquiler puede subir una vez",
            "la fianza es de tres mensualidades",
            "la oficina está abierta.",
        ),
        (
            "Esto es lo que dicen las fuentes: la fianza es de diez mensualidades, y el pago es inmediato.",
            "Esto es lo que dicen las fuentes:",
            "la fianza es de diez mensualidades",
            "el pago es inmediato.",
        ),
    ),
    whole=(
        "El arrendador debe informar al inquilino, al banco y a la aseguradora.",
        "Si el alquiler sube un 4 %, y el inquilino está en mora, el arrendador puede rescindir.",
        "Los perros, los gatos y la tenencia de aves requieren permiso.",
        "El perro y el gato están permitidos.",
        "El arrendador, que posee la casa y el jardín, debe avisar.",
        "El inquilino debe pagar el alquiler, la fianza y todas las tasas que sean debidas.",
        "Cuando el contrato termina, la fianza se devuelve.",
        "En 2020, el alquiler era de 500 EUR.",
        "El alquiler es de 500 EUR: se paga el primer día.",
    ),
    denied=(
        "No hay pruebas de que los perros requieren el consentimiento del arrendador.",
        "Las fuentes no dicen que el alquiler puede subir como máximo un 4 % al año.",
        "Nada indica que la fianza es de tres mensualidades.",
        "No hay información de que la oficina de Brevik abre a las 9.",
        "En los documentos no se menciona que los perros requieren el consentimiento escrito del arrendador.",
        "El contexto no indica que el arrendador debe avisar con seis meses de antelación.",
        "No se menciona en las fuentes que la fianza es de tres mensualidades.",
        "Las fuentes no mencionan si los perros requieren el consentimiento del arrendador.",
        "No hay evidencia de que el arrendador debe avisar con seis meses de antelación.",
    ),
    absent=(
        "No hay pruebas de que los pingüinos viven en la piscina.",
        "Las fuentes no dicen que la piscina abre a mediodía.",
        "Nada indica que el conserje ganó la lotería.",
        "No hay información sobre el aparcamiento en las fuentes.",
        "Los documentos no mencionan esto.",
        "El contexto no indica si los loros están permitidos.",
        "No se menciona en las fuentes quién paga el ascensor.",
        "Las fuentes no dicen cuántas veces puede subir el alquiler.",
        "Las fuentes no mencionan ninguna piscina.",
    ),
    refusals=(
        "Lo siento, pero no puedo responder a esta pregunta con la información disponible.",
        "No puedo responder a esta pregunta con la información disponible.",
        (
            "No tengo fuentes para responder a esta pregunta.\n\nPregunta: ¿Cuántas veces puede subir el alquiler?\n\nLas"
            " fuentes proporcionadas no contienen información sobre esta pregunta.\nPor favor, proporcione más contexto o"
            " reformule su pregunta."
        ),
        (
            "No tengo suficiente información en nuestros documentos de seguros para responder a su pregunta. Por favor,"
            " póngase en contacto con nuestro servicio de atención al cliente o reformule su pregunta."
        ),
        "Lamentablemente, el contexto proporcionado no contiene la respuesta a esta pregunta.",
        "Lo siento, pero las fuentes no contienen suficiente información para responder a su pregunta.",
        "Según los documentos proporcionados, no es posible determinar la respuesta.",
        "Las fuentes no proporcionan información sobre este tema. Consulte al arrendador.",
        "Lamento no poder responder a esta pregunta.",
        "No hay suficiente información en los documentos para responder a la pregunta.",
    ),
    inventions=(
        "Lo siento, pero no puedo responder a esta pregunta. La piscina tiene 500 pingüinos.",
        "Lo siento, pero la piscina tiene diez mil pingüinos.",
        "No puedo responder a esta pregunta, la piscina está llena de pingüinos.",
        "Las fuentes no lo dicen, pero el conserje ganó la lotería en 1999.",
        "No lo sé; la piscina está llena de pingüinos.",
        "Lamento decir que la piscina está llena de pingüinos.",
        "No puedo responder con las fuentes. Por favor, contacte con Port Lune en el 555 1234.",
        "No hay información en las fuentes, y el conserje ha ganado la lotería.",
        "No puedo responder a esta pregunta. **La piscina tiene 500 pingüinos**",
    ),
    remarks=(
        "Tenga en cuenta que esto no es asesoramiento legal.",
        "Esta respuesta es solo información general y no constituye asesoramiento jurídico.",
        "Esto no sustituye el asesoramiento legal profesional.",
        "Consulte a un abogado para obtener asesoramiento legal.",
        "Esta respuesta se basa únicamente en las fuentes proporcionadas.",
        "La información anterior se basa en los documentos proporcionados.",
        "Hágame saber si necesita más información.",
        "Espero que esto responda a su pregunta.",
        "Si tiene más preguntas, no dude en preguntar.",
    ),
    listed=(
        "2. Arrendador: seis meses de antelación",
        "2) La fianza es de tres mensualidades.",
        "(7) Los perros requieren el consentimiento escrito del arrendador.",
        "7. **Los perros** requieren el consentimiento escrito del arrendador.",
        "## 7. Los perros requieren el consentimiento escrito del arrendador",
        "**7. Los perros requieren el consentimiento escrito del arrendador**",
        "Paso 7: Los perros requieren el consentimiento escrito del arrendador.",
        "2.7. Los perros requieren el consentimiento escrito del arrendador.",
        "- 7. Los perros requieren el consentimiento escrito del arrendador.",
    ),
)

FRENCH = Sayings(
    source=(
        "Le loyer peut augmenter de 4 % au plus par an. La caution est de trois loyers. Le bailleur Morgan Hale doit donner"
        " congé six mois à l'avance. Les chiens exigent l'accord écrit du bailleur. Le bureau de Brevik ouvre à 9 heures."
    ),
    question="Combien de fois le loyer peut-il augmenter ?",
    wrong=(
        "Bien sûr le jardinier gagne 99 % de la loterie chaque semaine [1].",
        "Certainement le gardien nourrit 500 pingouins [1].",
        "Bonjour, la piscine est pleine de pingouins.",
        "Voici ce que disent les sources : la piscine contient dix mille pingouins [1].",
        "**La piscine contient 500 pingouins**",
        "## Les pingouins sont dans la piscine à minuit",
        "Saviez-vous que la piscine contient dix mille pingouins ?",
        "La piscine contient 500 pingouins :",
        "Oui, la piscine est pleine de pingouins.",
        "J'espère que vous savez que les pingouins vivent dans la piscine.",
        "N'est-il pas vrai que le gardien a gagné à la loterie en 1999 ?",
    ),
    right=(
        "Bien sûr le loyer peut augmenter de 4 % au plus par an [1].",
        "Voici ce que disent les sources : la caution est de trois loyers [1].",
        "**La caution est de trois loyers [1]**",
        "## Les chiens exigent l'accord écrit du bailleur",
        "Saviez-vous que les chiens exigent l'accord écrit du bailleur [1] ?",
        "La caution est de trois loyers [1] :",
        "Oui, le bureau de Brevik ouvre à 9 heures [1].",
        "Selon les sources, le bailleur doit donner congé six mois à l'avance [1].",
        "Veuillez noter que le loyer peut augmenter de 4 % au plus par an [1].",
    ),
    nothing=(
        "Bien sûr !",
        "Merci pour votre question.",
        "Voici la réponse :",
        "Voici ce que disent les sources :",
        "## Loyer",
        "**Caution et congé**",
        "Les règles suivantes s'appliquent :",
        "Combien de fois le loyer peut-il augmenter ?",
        "J'espère que cela vous aide !",
        "N'hésitez pas si vous avez d'autres questions.",
        "Souhaitez-vous en savoir plus ?",
    ),
    compound=(
        (
            "Le loyer augmente de 4 %, et la caution est de dix loyers [1].",
            "Le loyer augmente de 4 %",
            "la caution est de dix loyers [1].",
        ),
        (
            "Le loyer peut augmenter de 4 %, mais les chiens sont interdits [1].",
            "Le loyer peut augmenter de 4 %",
            "les chiens sont interdits [1].",
        ),
        (
            "La caution est de trois loyers ; la piscine est gratuite.",
            "La caution est de trois loyers",
            "la piscine est gratuite.",
        ),
        (
            "La caution est de trois loyers [1] et le bailleur doit payer la piscine [2].",
            "La caution est de trois loyers [1]",
            "le bailleur doit payer la piscine [2].",
        ),
        (
            "Le bureau est ouvert, tandis que la piscine est fermée.",
            "Le bureau est ouvert",
            "la piscine est fermée.",
        ),
        (
            "- Les chiens exigent un accord, mais les chats sont permis.",
            "- Les chiens exigent un accord",
            "les chats sont permis.",
        ),
        (
            "Le loyer peut augmenter une fois, la caution est de trois loyers, et le bureau est ouvert.",
            "Le loyer peut augmenter une fois",
            "la caution est de trois loyers",
            "le bureau est ouvert.",
        ),
        (
            "Voici ce que disent les sources : la caution est de dix loyers, et elle est due aussitôt.",
            "Voici ce que disent les sources :",
            "la caution est de dix loyers",
            "elle est due aussitôt.",
        ),
    ),
    whole=(
        "Le bailleur doit informer le locataire, la banque et l'assureur.",
        "Si le loyer augmente de 4 %, et le locataire est en retard, le bailleur peut donner congé.",
        "Les chiens, les chats et la garde d'oiseaux exigent un accord.",
        "Le chien et le chat sont permis.",
        "Le bailleur, qui possède la maison et le jardin, doit donner congé.",
        "Le locataire doit payer le loyer, la caution et tous les frais qui sont dus.",
        "Quand le contrat prend fin, la caution est rendue.",
        "En 2020, le loyer était de 500 EUR.",
        "Le loyer est de 500 EUR : il est dû le premier jour.",
    ),
    denied=(
        "Il n'y a aucune preuve que les chiens exigent l'accord du bailleur.",
        "Les sources ne disent pas que le loyer peut augmenter de 4 % au plus par an.",
        "Rien n'indique que la caution est de trois loyers.",
        "Il n'y a aucune information indiquant que le bureau de Brevik ouvre à 9 heures.",
        "Les documents ne mentionnent pas que les chiens exigent l'accord écrit du bailleur.",
        "Le contexte n'indique pas que le bailleur doit donner congé six mois à l'avance.",
        "Il n'est pas indiqué dans les sources que la caution est de trois loyers.",
        "Les sources ne précisent pas si les chiens exigent l'accord du bailleur.",
        "Rien ne prouve que le bailleur doit donner congé six mois à l'avance.",
    ),
    absent=(
        "Il n'y a aucune preuve que les pingouins vivent dans la piscine.",
        "Les sources ne disent pas que la piscine ouvre à midi.",
        "Rien n'indique que le gardien a gagné à la loterie.",
        "Il n'y a pas d'informations sur le stationnement dans les sources.",
        "Les documents ne mentionnent pas cela.",
        "Le contexte n'indique pas si les perroquets sont admis.",
        "Les sources ne précisent pas qui paie l'ascenseur.",
        "Les sources ne disent pas combien de fois le loyer peut augmenter.",
        "Les sources ne mentionnent aucune piscine.",
    ),
    refusals=(
        "Je suis désolé, mais je ne peux pas répondre à cette question avec les informations disponibles.",
        "Je ne peux pas répondre à cette question avec les informations disponibles.",
        (
            "Je n'ai pas de sources pour répondre à cette question.\n\nQuestion : Combien de fois le loyer peut-il augmenter"
            " ?\n\nLes sources fournies ne contiennent pas d'informations sur cette question.\nVeuillez fournir plus de"
            " contexte ou reformuler votre question."
        ),
        (
            "Je n'ai pas assez d'informations dans nos documents d'assurance pour répondre à votre question. Veuillez"
            " contacter notre service client ou reformuler votre question."
        ),
        "Malheureusement, le contexte fourni ne contient pas la réponse à cette question.",
        "Désolé, mais les sources ne contiennent pas assez d'informations pour répondre à votre question.",
        "D'après les documents fournis, je ne suis pas en mesure de déterminer la réponse.",
        "Les sources ne donnent aucune information sur ce sujet. Veuillez consulter le bailleur.",
        "Je regrette de ne pas pouvoir répondre à cette question.",
        "Il n'y a pas assez d'informations dans les documents pour répondre à la question.",
    ),
    inventions=(
        "Je suis désolé, mais je ne peux pas répondre à cette question. La piscine contient 500 pingouins.",
        "Je suis désolé, mais la piscine contient dix mille pingouins.",
        "Je ne peux pas répondre à cette question, la piscine est pleine de pingouins.",
        "Les sources ne le disent pas, mais le gardien a gagné à la loterie en 1999.",
        "Je ne sais pas ; la piscine est pleine de pingouins.",
        "Je regrette de dire que la piscine est pleine de pingouins.",
        "Je ne peux pas répondre avec les sources. Veuillez contacter Port Lune au 555 1234.",
        "Il n'y a pas d'informations dans les sources, et le gardien a gagné à la loterie.",
        "Je ne peux pas répondre à cette question. **La piscine contient 500 pingouins**",
    ),
    remarks=(
        "Veuillez noter qu'il ne s'agit pas d'un avis juridique.",
        "Cette réponse est donnée à titre d'information générale et ne constitue pas un conseil juridique.",
        "Ceci ne remplace pas un conseil juridique professionnel.",
        "Veuillez consulter un avocat pour un avis juridique.",
        "Cette réponse se fonde uniquement sur les sources fournies.",
        "Les informations ci-dessus se fondent sur les documents fournis.",
        "Faites-moi savoir si vous avez besoin de plus d'informations.",
        "J'espère que cela répond à votre question.",
        "Si vous avez d'autres questions, n'hésitez pas à demander.",
    ),
    listed=(
        "2. Bailleur : six mois à l'avance",
        "2) La caution est de trois loyers.",
        "(7) Les chiens exigent l'accord écrit du bailleur.",
        "7. **Les chiens** exigent l'accord écrit du bailleur.",
        "## 7. Les chiens exigent l'accord écrit du bailleur",
        "**7. Les chiens exigent l'accord écrit du bailleur**",
        "Étape 7 : Les chiens exigent l'accord écrit du bailleur.",
        "2.7. Les chiens exigent l'accord écrit du bailleur.",
        "- 7. Les chiens exigent l'accord écrit du bailleur.",
    ),
)

CHINESE = Sayings(
    source="租金每年最多可以上涨4%。押金为三个月租金。房东王伟必须提前六个月通知。养狗需要房东书面同意。办公室上午9点开门。",
    question="租金多久可以上涨一次？",
    wrong=(
        "当然，园丁每周赢得99%的彩票[1]。",
        "您好，游泳池里有五百只企鹅[1]。",
        "感谢您的提问，游泳池里有企鹅。",
        "以下是资料的说明：游泳池里有一万只企鹅[1]。",
        "**游泳池里有500只企鹅**",
        "## 企鹅在午夜由看门人喂养",
        "您知道游泳池里有一万只企鹅吗？",
        "游泳池里有500只企鹅：",
        "是的，游泳池里有企鹅。",
        "希望您知道游泳池里有企鹅。",
        "难道看门人没有在1999年中彩票吗？",
    ),
    right=(
        "当然，租金每年最多可以上涨4%[1]。",
        "以下是资料的说明：押金为三个月租金[1]。",
        "**押金为三个月租金[1]**",
        "## 养狗需要房东书面同意",
        "您知道养狗需要房东书面同意吗[1]？",
        "押金为三个月租金[1]：",
        "是的，办公室上午9点开门[1]。",
        "根据资料，房东必须提前六个月通知[1]。",
        "请注意，租金每年最多可以上涨4%[1]。",
    ),
    nothing=(
        "当然。",
        "感谢您的提问。",
        "以下是答案：",
        "以下是资料的说明：",
        "## 租金",
        "**押金和通知**",
        "规定如下：",
        "租金多久可以上涨一次？",
        "希望这对您有帮助！",
        "如果您还有其他问题，请告诉我。",
        "您想了解更多吗？",
    ),
    compound=(
        ("租金上涨4%，而且押金是十个月租金[1]。", "租金上涨4%", "押金是十个月租金[1]。"),
        ("租金可以上涨4%，但是养狗是禁止的[1]。", "租金可以上涨4%", "养狗是禁止的[1]。"),
        ("押金为三个月租金；游泳池是免费的。", "押金为三个月租金", "游泳池是免费的。"),
        ("押金为三个月租金[1]，房东必须支付游泳池费用[2]。", "押金为三个月租金[1]", "房东必须支付游泳池费用[2]。"),
        ("办公室必须九点开门，而游泳池应六点开门。", "办公室必须九点开门", "游泳池应六点开门。"),
        ("- 养狗需要同意，不过养猫是允许的。", "- 养狗需要同意", "养猫是允许的。"),
        (
            "租金可以上涨一次，押金为三个月租金，办公室应九点开门。",
            "租金可以上涨一次",
            "押金为三个月租金",
            "办公室应九点开门。",
        ),
        (
            "以下是资料的说明：押金为十个月租金，而且租金应立即支付。",
            "以下是资料的说明：",
            "押金为十个月租金",
            "租金应立即支付。",
        ),
    ),
    whole=(
        "房东必须通知租客、银行和保险公司。",
        "如果租金上涨4%，租客应当同意，房东才可以通知。",
        "养狗、养猫和养鸟需要同意。",
        "租客必须支付租金，押金，以及各种费用。",
        "合同结束时，押金退还。",
        "在2020年，租金是500元。",
        "根据合同，押金为三个月租金。",
        "租金是500元：每月第一天支付。",
    ),
    denied=(
        "没有证据表明养狗需要房东书面同意。",
        "资料没有说租金每年最多可以上涨4%。",
        "没有任何迹象表明押金为三个月租金。",
        "没有信息表明办公室上午9点开门。",
        "文档中没有提到养狗需要房东书面同意。",
        "上下文没有说明房东必须提前六个月通知。",
        "资料中并未提到押金为三个月租金。",
        "资料没有说明养狗是否需要房东书面同意。",
        "没有证据显示房东必须提前六个月通知。",
    ),
    absent=(
        "没有证据表明企鹅住在游泳池里。",
        "资料没有说游泳池中午开放。",
        "没有任何迹象表明看门人中了彩票。",
        "资料中没有关于停车的信息。",
        "文档中没有提到这一点。",
        "上下文没有说明是否允许养鹦鹉。",
        "资料中并未提到谁支付电梯费用。",
        "资料没有说明租金多久可以上涨一次。",
        "资料没有提到游泳池。",
    ),
    refusals=(
        "很抱歉，根据现有信息，我无法回答这个问题。",
        "根据现有信息，我无法回答这个问题。",
        "我没有任何资料可以回答这个问题。\n\n问题：租金多久可以上涨一次？\n\n提供的资料中没有与此问题相关的信息。\n请提供更多上下文或换一种方式提问。",
        "我们的保险文件中没有足够的信息来回答您的问题。请联系我们的客服团队寻求帮助，或者更具体地重新提问。",
        "遗憾的是，提供的上下文中没有这个问题的答案。",
        "对不起，资料中没有足够的信息来回答您的问题。",
        "根据提供的文档，我无法确定答案。",
        "资料没有提供有关这个主题的信息。请咨询房东。",
        "恐怕我无法根据提供的资料回答。",
        "文档中没有足够的信息来回答这个问题。",
    ),
    inventions=(
        "很抱歉，我无法回答这个问题。游泳池里有500只企鹅。",
        "很抱歉，游泳池里有一万只企鹅。",
        "我无法回答这个问题，游泳池里是企鹅的家。",
        "资料没有说明，但看门人在1999年中了彩票。",
        "我不知道；游泳池里有企鹅。",
        "我很遗憾地说游泳池里有企鹅。",
        "我无法根据资料回答。请致电5551234。",
        "资料中没有信息，而且看门人是彩票的赢家。",
        "我无法回答这个问题。**游泳池里有500只企鹅**",
    ),
    remarks=(
        "请注意，这不是法律建议。",
        "本回答仅供一般参考，不构成法律建议。",
        "这不能代替专业的法律建议。",
        "请咨询律师以获取法律建议。",
        "本回答仅基于提供的资料。",
        "以上信息基于提供的文档。",
        "如果您需要更多信息，请告诉我。",
        "希望这回答了您的问题。",
        "如有其他问题，请随时提问。",
    ),
    listed=(
        "2. 房东：提前六个月通知",
        "2) 押金为三个月租金。",
        "(7) 养狗需要房东书面同意。",
        "7、养狗需要房东书面同意。",
        "## 7. 养狗需要房东书面同意",
        "**7. 养狗需要房东书面同意**",
        "步骤7：养狗需要房东书面同意。",
        "第7步：养狗需要房东书面同意。",
        "- 7. 养狗需要房东书面同意。",
    ),
)

ARABIC = Sayings(
    source=(
        "يجوز أن يرتفع الإيجار بنسبة 4% كحد أقصى في السنة. التأمين هو إيجار ثلاثة أشهر. يجب على المؤجر حسن المالكي أن يخطر"
        " قبل ستة أشهر. تحتاج الكلاب إلى موافقة خطية من المؤجر. يفتح المكتب في الساعة 9."
    ),
    question="كم مرة يجوز أن يرتفع الإيجار؟",
    wrong=(
        "بالطبع يربح البستاني 99% من اليانصيب كل أسبوع [1].",
        "بالتأكيد يطعم الحارس 500 بطريق [1].",
        "مرحبا، المسبح مليء بالبطاريق.",
        "هذا ما تقوله المصادر: في المسبح 500 بطريق [1].",
        "**في المسبح 500 بطريق**",
        "## يجب إطعام البطاريق عند منتصف الليل",
        "هل تعلم أن في المسبح 500 بطريق؟",
        "في المسبح 500 بطريق:",
        "نعم، تعيش البطاريق في المسبح.",
        "آمل أنك تعلم أن البطاريق تعيش في المسبح.",
        "أليس صحيحا أن الحارس ربح اليانصيب في 1999؟",
    ),
    right=(
        "بالطبع يجوز أن يرتفع الإيجار بنسبة 4% كحد أقصى في السنة [1].",
        "هذا ما تقوله المصادر: التأمين هو إيجار ثلاثة أشهر [1].",
        "**التأمين هو إيجار ثلاثة أشهر [1]**",
        "## تحتاج الكلاب إلى موافقة خطية من المؤجر",
        "هل تعلم أن الكلاب تحتاج إلى موافقة خطية من المؤجر [1]؟",
        "التأمين هو إيجار ثلاثة أشهر [1]:",
        "نعم، يفتح المكتب في الساعة 9 [1].",
        "وفقا للمصادر، يجب على المؤجر أن يخطر قبل ستة أشهر [1].",
        "يرجى ملاحظة أن الكلاب تحتاج إلى موافقة خطية من المؤجر [1].",
    ),
    nothing=(
        "بالطبع.",
        "شكرا على سؤالك.",
        "إليك الإجابة:",
        "هذا ما تقوله المصادر:",
        "## الإيجار",
        "**التأمين والإخطار**",
        "ينطبق ما يلي:",
        "كم مرة يجوز أن يرتفع الإيجار؟",
        "آمل أن يساعدك هذا!",
        "أخبرني إذا كانت لديك أسئلة أخرى.",
        "هل تريد معرفة المزيد؟",
    ),
    compound=(
        (
            "يرتفع الإيجار بنسبة 4%، والتأمين هو إيجار عشرة أشهر [1].",
            "يرتفع الإيجار بنسبة 4%",
            "التأمين هو إيجار عشرة أشهر [1].",
        ),
        (
            "يجوز أن يرتفع الإيجار بنسبة 4%، لكن الكلاب ليست مسموحة [1].",
            "يجوز أن يرتفع الإيجار بنسبة 4%",
            "الكلاب ليست مسموحة [1].",
        ),
        ("التأمين هو إيجار ثلاثة أشهر؛ المسبح هو مجاني.", "التأمين هو إيجار ثلاثة أشهر", "المسبح هو مجاني."),
        (
            "التأمين هو إيجار ثلاثة أشهر [1]، ويجب على المؤجر دفع ثمن المسبح [2].",
            "التأمين هو إيجار ثلاثة أشهر [1]",
            "يجب على المؤجر دفع ثمن المسبح [2].",
        ),
        (
            "يفتح المكتب في الساعة 9، بينما يفتح المسبح في السادسة.",
            "يفتح المكتب في الساعة 9",
            "يفتح المسبح في السادسة.",
        ),
        ("- تحتاج الكلاب إلى موافقة، ولكن القطط ليست ممنوعة.", "- تحتاج الكلاب إلى موافقة", "القطط ليست ممنوعة."),
        (
            "يجوز أن يرتفع الإيجار مرة، والتأمين هو إيجار ثلاثة أشهر، ويفتح المكتب في الساعة 9.",
            "يجوز أن يرتفع الإيجار مرة",
            "التأمين هو إيجار ثلاثة أشهر",
            "يفتح المكتب في الساعة 9.",
        ),
        (
            "هذا ما تقوله المصادر: التأمين هو إيجار عشرة أشهر، ويجب دفع التأمين فورا.",
            "هذا ما تقوله المصادر:",
            "التأمين هو إيجار عشرة أشهر",
            "يجب دفع التأمين فورا.",
        ),
    ),
    whole=(
        "يجب على المؤجر إخطار المستأجر والبنك وشركة التأمين.",
        "إذا ارتفع الإيجار بنسبة 4%، وتأخر المستأجر، يجوز للمؤجر الإخطار.",
        "تحتاج الكلاب والقطط وتربية الطيور إلى موافقة.",
        "الكلب والقط مسموح بهما.",
        "يجب على المستأجر دفع الإيجار، والتأمين، وجميع الرسوم.",
        "عندما ينتهي العقد، يعاد التأمين.",
        "في عام 2020، كان الإيجار 500.",
        "وفقا للعقد، التأمين هو إيجار ثلاثة أشهر.",
    ),
    denied=(
        "لا يوجد دليل على أن الكلاب تحتاج إلى موافقة خطية من المؤجر.",
        "لا تقول المصادر إن الإيجار يجوز أن يرتفع بنسبة 4% كحد أقصى في السنة.",
        "لا شيء يشير إلى أن التأمين هو إيجار ثلاثة أشهر.",
        "لا توجد معلومات تفيد بأن المكتب يفتح في الساعة 9.",
        "لا تذكر الوثائق أن الكلاب تحتاج إلى موافقة خطية من المؤجر.",
        "لا يذكر السياق أن المؤجر يجب أن يخطر قبل ستة أشهر.",
        "لم يرد في المصادر أن التأمين هو إيجار ثلاثة أشهر.",
        "لا توضح المصادر ما إذا كانت الكلاب تحتاج إلى موافقة خطية من المؤجر.",
        "ليس هناك دليل على أن المؤجر يجب أن يخطر قبل ستة أشهر.",
    ),
    absent=(
        "لا يوجد دليل على أن البطاريق تعيش في المسبح.",
        "لا تقول المصادر إن المسبح يفتح ظهرا.",
        "لا شيء يشير إلى أن الحارس ربح اليانصيب.",
        "لا توجد معلومات عن مواقف السيارات.",
        "لا تذكر الوثائق ذلك.",
        "لا يذكر السياق ما إذا كانت الببغاوات مسموحة.",
        "لم يرد في المصادر من يدفع ثمن المصعد.",
        "لا تذكر المصادر كم مرة يجوز أن يرتفع الإيجار.",
        "لا تذكر المصادر أي مسبح.",
    ),
    refusals=(
        "عذرا، لكن لا يمكنني الإجابة عن هذا السؤال بناء على المعلومات المتاحة.",
        "لا يمكنني الإجابة عن هذا السؤال بناء على المعلومات المتاحة.",
        (
            "ليس لدي أي مصادر للإجابة عن هذا السؤال.\n\nالسؤال: كم مرة يجوز أن يرتفع الإيجار؟\n\nلا تحتوي المصادر المقدمة على"
            " معلومات متعلقة بهذا السؤال.\nيرجى تقديم سياق إضافي أو إعادة صياغة سؤالك."
        ),
        "ليس لدي معلومات كافية في وثائق التأمين للإجابة عن سؤالك. يرجى التواصل مع فريق خدمة العملاء أو إعادة صياغة سؤالك.",
        "للأسف، لا يحتوي السياق المقدم على إجابة لهذا السؤال.",
        "نعتذر، لا تحتوي المصادر على معلومات كافية للإجابة عن سؤالك.",
        "بناء على الوثائق المقدمة، لا يمكنني تحديد الإجابة.",
        "لا تقدم المصادر أي معلومات حول هذا الموضوع. يرجى استشارة المؤجر.",
        "أخشى أنني لا أستطيع الإجابة من المصادر المقدمة.",
        "لا توجد معلومات كافية في الوثائق للإجابة عن السؤال.",
    ),
    inventions=(
        "عذرا، لا يمكنني الإجابة عن هذا السؤال. في المسبح 500 بطريق.",
        "عذرا، لكن المسبح مليء بالبطاريق.",
        "لا يمكنني الإجابة عن هذا السؤال، والمسبح هو بيت البطاريق.",
        "لا تذكر المصادر ذلك، لكن الحارس ربح اليانصيب في 1999.",
        "لا أعرف؛ تعيش البطاريق في المسبح.",
        "يؤسفني أن أقول إن البطاريق تعيش في المسبح.",
        "لا يمكنني الإجابة من المصادر. يرجى الاتصال على 5551234.",
        "لا توجد معلومات في المصادر، والحارس هو الفائز باليانصيب.",
        "لا يمكنني الإجابة عن هذا السؤال. **في المسبح 500 بطريق**",
    ),
    remarks=(
        "يرجى ملاحظة أن هذه ليست استشارة قانونية.",
        "هذه الإجابة للمعلومات العامة فقط ولا تشكل استشارة قانونية.",
        "هذا لا يغني عن استشارة قانونية مهنية.",
        "يرجى استشارة محام للحصول على مشورة قانونية.",
        "تستند هذه الإجابة إلى المصادر المقدمة فقط.",
        "تستند المعلومات أعلاه إلى الوثائق المقدمة.",
        "أخبرني إذا كنت بحاجة إلى مزيد من المعلومات.",
        "آمل أن يجيب هذا عن سؤالك.",
        "إذا كانت لديك أسئلة أخرى، فلا تتردد في طرحها.",
    ),
    listed=(
        "2. المؤجر: قبل ستة أشهر",
        "2) التأمين هو إيجار ثلاثة أشهر.",
        "(7) تحتاج الكلاب إلى موافقة خطية من المؤجر.",
        "7. **تحتاج الكلاب** إلى موافقة خطية من المؤجر.",
        "## 7. تحتاج الكلاب إلى موافقة خطية من المؤجر",
        "**7. تحتاج الكلاب إلى موافقة خطية من المؤجر**",
        "الخطوة 7: تحتاج الكلاب إلى موافقة خطية من المؤجر.",
        "٧. تحتاج الكلاب إلى موافقة خطية من المؤجر.",
        "- 7. تحتاج الكلاب إلى موافقة خطية من المؤجر.",
    ),
)

SAYINGS = {"en": ENGLISH, "de": GERMAN, "es": SPANISH, "fr": FRENCH, "zh": CHINESE, "ar": ARABIC}
