"""Texts for a person in place of an answer: the reason and a next step, in the language of the question."""
# ruff: noqa: RUF001 - full-width punctuation is meant

from collections.abc import Mapping

from schemas.generation import FallbackMessages
from schemas.job import JobRequest
from schemas.states import JobState
from tasks.text.language import language_of

ENGLISH = "en"

MESSAGES: Mapping[str, FallbackMessages] = {
    "en": FallbackMessages(
        no_evidence="No sources were found for this question, so it was not answered. Try to rephrase it, or add documents"
        " that deal with it.",
        abstained="The sources given do not answer this question. Try to make it more specific, or add documents that deal"
        " with it.",
        rejected="An answer was found, but the sources do not support it well enough to show it. Try to make the question more"
        " specific, or add documents that deal with it.",
        refused="The model declined to answer this question. Try to rephrase it; if it should be answered, tell the operator"
        " of this service.",
        failed="This question could not be answered because of a technical problem. Please try again later; if it happens"
        " again, tell the operator of this service.",
    ),
    "de": FallbackMessages(
        no_evidence="Zu dieser Frage wurden keine Quellen gefunden, deshalb wurde sie nicht beantwortet. Formulieren Sie sie"
        " anders oder ergänzen Sie passende Dokumente.",
        abstained="Die vorliegenden Quellen beantworten diese Frage nicht. Fragen Sie genauer oder ergänzen Sie passende"
        " Dokumente.",
        rejected="Es wurde eine Antwort gefunden, die Quellen belegen sie aber nicht gut genug, um sie zu zeigen. Fragen Sie genauer"
        " oder ergänzen Sie passende Dokumente.",
        refused="Das Modell hat es abgelehnt, diese Frage zu beantworten. Formulieren Sie sie anders; sollte sie beantwortet"
        " werden, wenden Sie sich an den Betreiber dieses Dienstes.",
        failed="Diese Frage konnte wegen eines technischen Problems nicht beantwortet werden. Bitte versuchen Sie es später"
        " erneut; tritt es wieder auf, wenden Sie sich an den Betreiber dieses Dienstes.",
    ),
    "es": FallbackMessages(
        no_evidence="No se encontraron fuentes para esta pregunta, por lo que no se ha respondido. Formúlela de otra manera o"
        " añada documentos sobre el tema.",
        abstained="Las fuentes disponibles no responden a esta pregunta. Intente precisarla o añada documentos sobre el tema.",
        rejected="Se encontró una respuesta, pero las fuentes no la respaldan lo suficiente para mostrarla. Intente precisar la"
        " pregunta o añada documentos sobre el tema.",
        refused="El modelo se ha negado a responder a esta pregunta. Formúlela de otra manera; si debería responderse, avise"
        " al responsable de este servicio.",
        failed="No se pudo responder a esta pregunta por un problema técnico. Vuelva a intentarlo más tarde; si se repite,"
        " avise al responsable de este servicio.",
    ),
    "fr": FallbackMessages(
        no_evidence="Aucune source n'a été trouvée pour cette question, qui est donc restée sans réponse. Reformulez-la ou"
        " ajoutez des documents sur le sujet.",
        abstained="Les sources disponibles ne répondent pas à cette question. Essayez de la préciser ou ajoutez des documents"
        " sur le sujet.",
        rejected="Une réponse a été trouvée, mais les sources ne l'étayent pas assez pour la montrer. Essayez de préciser la question"
        " ou ajoutez des documents sur le sujet.",
        refused="Le modèle a refusé de répondre à cette question. Reformulez-la ; si elle devrait recevoir une réponse,"
        " prévenez le responsable de ce service.",
        failed="Un problème technique a empêché de répondre à cette question. Veuillez réessayer plus tard ; s'il se"
        " reproduit, prévenez le responsable de ce service.",
    ),
    "zh": FallbackMessages(
        no_evidence="没有找到与此问题相关的资料，因此未作回答。请换一种方式提问，或补充相关文档。",
        abstained="现有资料无法回答此问题。请把问题提得更具体，或补充相关文档。",
        rejected="已找到答案，但资料对它的支持不足，因此不予显示。请把问题提得更具体，或补充相关文档。",
        refused="模型拒绝回答此问题。请换一种方式提问；如认为应予回答，请联系本服务的管理员。",
        failed="由于技术问题，未能回答此问题。请稍后重试；如再次出现，请联系本服务的管理员。",
    ),
    "ar": FallbackMessages(
        no_evidence="لم يُعثر على مصادر لهذا السؤال، لذلك لم تتم الإجابة عنه. جرّب إعادة صياغته أو أضف وثائق تتناول موضوعه.",
        abstained="المصادر المتاحة لا تجيب عن هذا السؤال. جرّب أن تجعله أكثر تحديدًا أو أضف وثائق تتناول موضوعه.",
        rejected="عُثر على إجابة، لكن المصادر لا تدعمها بما يكفي لعرضها. جرّب أن تجعل السؤال أكثر تحديدًا أو أضف وثائق تتناول موضوعه.",
        refused="رفض النموذج الإجابة عن هذا السؤال. جرّب إعادة صياغته، وإن كان ينبغي أن يُجاب عنه فأبلغ القائمين على هذه الخدمة.",
        failed="تعذّرت الإجابة عن هذا السؤال بسبب مشكلة تقنية. يُرجى المحاولة لاحقًا، وإن تكرر ذلك فأبلغ القائمين على هذه الخدمة.",
    ),
}
"""One set of texts per language; any other language gets English."""

NOT_VERIFIED: Mapping[str, str] = {
    "en": "Not verified against the sources:",
    "de": "Durch die Quellen nicht belegt:",
    "es": "No verificado en las fuentes:",
    "fr": "Non vérifié dans les sources :",
    "zh": "未经资料证实：",
    "ar": "غير مؤكد في المصادر:",
}
"""The line above the list of unsupported claims."""

ENDED: Mapping[str, Mapping[JobState, str]] = {
    "en": {
        JobState.EXPIRED: "This question was not answered in time: its deadline passed. Hand it in again with a later one.",
        JobState.CANCELLED: "This question was not answered, because it was cancelled. Hand it in again if it should be.",
        JobState.COMPLETED: "The model's answer to this question was empty. Try to rephrase the question, or hand it in again.",
    },
    "de": {
        JobState.EXPIRED: "Diese Frage wurde nicht rechtzeitig beantwortet: Ihre Frist ist abgelaufen. Reichen Sie sie mit"
        " einer späteren noch einmal ein.",
        JobState.CANCELLED: "Diese Frage wurde nicht beantwortet, weil sie abgebrochen wurde. Reichen Sie sie bei Bedarf"
        " noch einmal ein.",
        JobState.COMPLETED: "Die Antwort des Modells auf diese Frage war leer. Formulieren Sie die Frage anders, oder"
        " reichen Sie sie noch einmal ein.",
    },
    "es": {
        JobState.EXPIRED: "Esta pregunta no se respondió a tiempo: su plazo venció. Vuelva a enviarla con un plazo"
        " posterior.",
        JobState.CANCELLED: "Esta pregunta no se respondió porque fue cancelada. Vuelva a enviarla si la necesita.",
        JobState.COMPLETED: "La respuesta del modelo a esta pregunta estaba vacía. Formule la pregunta de otra manera o"
        " vuelva a enviarla.",
    },
    "fr": {
        JobState.EXPIRED: "Cette question n'a pas reçu de réponse à temps : son délai est dépassé. Soumettez-la à nouveau"
        " avec un délai plus long.",
        JobState.CANCELLED: "Cette question n'a pas reçu de réponse, car elle a été annulée. Soumettez-la à nouveau si"
        " nécessaire.",
        JobState.COMPLETED: "La réponse du modèle à cette question était vide. Reformulez la question ou soumettez-la à"
        " nouveau.",
    },
    "zh": {
        JobState.EXPIRED: "此问题未能按时回答：期限已过。请以更晚的期限重新提交。",
        JobState.CANCELLED: "此问题已被取消，因此未作回答。如有需要，请重新提交。",
        JobState.COMPLETED: "模型对此问题的回答为空。请换一种方式提问，或重新提交。",
    },
    "ar": {
        JobState.EXPIRED: "لم تتم الإجابة عن هذا السؤال في الوقت المحدد: انقضت مهلته. أعد تقديمه بمهلة أطول.",
        JobState.CANCELLED: "لم تتم الإجابة عن هذا السؤال لأنه أُلغي. أعد تقديمه إذا لزم الأمر.",
        JobState.COMPLETED: "كانت إجابة النموذج عن هذا السؤال فارغة. جرّب إعادة صياغة السؤال أو أعد تقديمه.",
    },
}
"""Texts of final jobs with an empty answer, by state; a failed job has its text in ``MESSAGES``."""

_NAMES = {
    name: code
    for code, names in {
        "en": "english englisch",
        "de": "german deutsch",
        "es": "spanish español espanol castellano",
        "fr": "french français francais",
        "zh": "chinese mandarin 中文 汉语 漢語 简体中文 繁體中文",
        "ar": "arabic العربية عربي",
    }.items()
    for name in names.split()
}


INVALID = (
    "This could not be answered, because it is not a valid question with its sources. Correct it as the failure says,"
    " and submit it again."
)
"""The text for a line that submission refuses; in English, because the question itself may be missing."""


def code_of(language: str) -> str:
    """The language code of a name or tag such as ``de``, ``de-AT`` or ``German``; otherwise the first part of the tag."""
    name = language.strip().lower()
    return _NAMES.get(name) or name.replace("_", "-").split("-")[0]


def fallback(request: JobRequest, kind: str) -> str:
    """The text for ``no_evidence``, ``abstained``, ``rejected``, ``failed`` or ``refused``: the caller's own, or the default.

    A caller's text for a failure serves for a refusal too if there is none for refusals. The default is in the language
    of the config, else in that of the query, else in English.
    """
    config = request.config
    if (own := config.fallback_messages) is not None:
        text = getattr(own, kind) or (own.failed if kind == "refused" else None)
        if text:
            return str(text)
    return str(getattr(MESSAGES[_language_of_message(request)], kind))


def without_answer(request: JobRequest, state: JobState) -> str:
    """The text of a job that ended in this state with an empty answer: the caller's own for a failure, or the default."""
    own = request.config.fallback_messages
    if own is not None and own.failed:
        return own.failed
    return ENDED[_language_of_message(request)].get(state) or fallback(request, "failed")


def not_verified(request: JobRequest) -> str:
    """The line above the list of unsupported claims, in the language of ``fallback``."""
    return NOT_VERIFIED[_language_of_message(request)]


def _language_of_message(request: JobRequest) -> str:
    configured = request.config.language
    language = code_of(configured) if configured else language_of(request.query)
    return language if language is not None and language in MESSAGES else ENGLISH
