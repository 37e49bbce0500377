"""Measures what a prompt costs beside its sources, and how long it takes to build.

    python bench/prompt.py

Tokens are counted by OpenAI's vocabulary o200k where the extra ``tokens`` is installed, else estimated; the head of
the output says which. Overhead is everything but the sources' own words and the question: rules, tags and their numbers.
Times are medians over different jobs, on one core of this machine; no two sources of a job say the same, but in the
last row.
"""
# ruff: noqa: RUF001 - full-width characters are meant

import random
import statistics
import time
from collections.abc import Callable, Iterable

from throughput import SOURCE_CHARACTERS, requests

from schemas.generation import AnswerProtocol, GenerationMode
from schemas.job import JobRequest, SourceContext
from schemas.model_call import SourcePart
from tasks.prompting.messages import render
from tasks.prompting.sources.pack import ESTIMATED, exact_counter
from tasks.submit import parse_request

AIM_FIXED, AIM_PER_SOURCE, AIM_MS = 120, 12, 0.5
COUNTER = exact_counter("gpt-5") or ESTIMATED

ARABIC = """يجوز للمستأجر إنهاء عقد الإيجار بإشعار كتابي مدته ثلاثة أشهر قبل نهاية الشهر. على المؤجر تأكيد استلام الإشعار خلال
أربعة عشر يوما، وإلا بدأت المدة من جديد. لا ترتفع الأجرة أكثر من مرة واحدة في السنة ولا تزيد على أربعة في المئة. يدفع
المستأجر تأمينا يعادل أجرة شهرين، ويعاد إليه خلال ستة أشهر من انتهاء العقد بعد خصم الأضرار. يتحمل المؤجر صيانة السقف
والجدران والأنابيب، ويتحمل المستأجر ما يتلفه بنفسه. لا يسمح بتربية الحيوانات الكبيرة دون موافقة خطية من الجيران."""
CHINESE = """承租人可以提前三个月书面通知终止租赁合同，期限自月底起算。出租人应在十四天内确认收到通知，否则期限重新计算。租金每年
最多只能上涨一次，涨幅不得超过百分之四。承租人支付相当于两个月租金的押金，合同结束后六个月内扣除损坏费用并退还。屋顶、墙壁和管道由
出租人维修，承租人自己造成的损坏由其承担。未经邻居书面同意，不得饲养大型动物。洗衣机请于早上七点至晚上九点之间使用，钥匙丢失须立即报告。"""


def job(raw: dict[str, object], sources: int, mode: GenerationMode) -> JobRequest:
    """A job of the throughput bench with another number of sources, all of which fit."""
    context = raw["context"]
    assert isinstance(context, list)
    config = {"mode": mode.value, "max_context_tokens": 1_000_000}
    return parse_request({**raw, "context": context[:sources], "config": config})[0]


def overhead(request: JobRequest, protocol: AnswerProtocol) -> tuple[int, int, int]:
    """Sources shown, tokens of their words, and tokens of everything else."""
    snapshot = render(request, protocol).snapshot
    contents = [source.content for source in request.context]
    whole = sum(COUNTER.count(text) for _, text in snapshot.texts(contents))
    parts = [part for message in snapshot.messages for part in message.parts if isinstance(part, SourcePart)]
    words = sum(COUNTER.count(contents[part.source_index][part.start : part.end]) for part in parts)
    return len(snapshot.shown), words, whole - words - COUNTER.count(request.query)


def median_ms(build: Callable[[JobRequest], object], jobs: Iterable[JobRequest]) -> float:
    """Median over the jobs of the best of three."""
    durations_ms = []
    for job in jobs:
        runs = []
        for _ in range(3):
            started = time.perf_counter()
            build(job)
            runs.append((time.perf_counter() - started) * 1000)
        durations_ms.append(min(runs))
    return statistics.median(durations_ms)


def distinct(count: int) -> list[dict[str, object]]:
    """Jobs of 20 sources whose sentences are drawn from the examples, so that no two sources say the same."""
    raws = requests(count)
    texts = [text for raw in raws for text in raw["context"]]  # type: ignore[attr-defined]
    return _mixed(raws, [text.split() for text in texts], " ", SOURCE_CHARACTERS)


def in_language(count: int, text: str, joint: str, characters: int) -> list[dict[str, object]]:
    """The same with runs of the words of one text, or of its characters where it has no spaces."""
    return _mixed(requests(count), [text.split() if joint else list(text.replace("\n", ""))], joint, characters)


def _mixed(
    raws: list[dict[str, object]], words: list[list[str]], joint: str, characters: int
) -> list[dict[str, object]]:
    draw = random.Random(7)
    jobs = []
    for raw in raws:
        context = []
        for _ in range(20):
            text = ""
            while len(text) < characters:
                chosen = draw.choice(words)
                start = draw.randrange(len(chosen))
                text += joint.join(chosen[start : start + draw.randint(4, 9)]) + joint
            context.append(text[:characters])
        jobs.append({**raw, "context": context})
    return jobs


def main() -> None:
    raws = distinct(60)
    print(f"tokens by: {COUNTER.name}")
    print(
        f"{'mode':<16}{'protocol':<10}{'sources':>8}{'overhead':>10}{'aim':>6}{'per source':>12}{'prompt/source':>15}"
    )
    for mode in GenerationMode:
        for protocol in AnswerProtocol:
            fixed = overhead(job(raws[0], 0, mode), protocol)[2]
            for sources in (1, 8, 20):
                source_count, words, beside = overhead(job(raws[0], sources, mode), protocol)
                aim = AIM_FIXED + AIM_PER_SOURCE * source_count
                print(
                    f"{mode.value:<16}{protocol.value:<10}{source_count:>8}{beside:>10}{aim:>6}"
                    f"{(beside - fixed) / max(source_count, 1):>12.1f}{(words + beside) / words:>15.3f}"
                    f"{'' if beside < aim else '   over the aim'}"
                )
    print(f"\n{'sources of 2.5 KB':<20}{'texts':<28}{'ms':>8}")
    for sources in (1, 4, 8, 12, 16, 20):
        jobs = [job(raw, sources, GenerationMode.GROUNDED) for raw in raws]
        row(
            sources,
            "ASCII",
            [source_job.model_copy(update={"context": tuple(map(_ascii, source_job.context))}) for source_job in jobs],
        )
        row(sources, "with accents and quotes", jobs)
    for language, text, joint in (("Arabic", ARABIC, " "), ("Chinese", CHINESE, "")):
        # As many bytes, and as many characters, which are two to three bytes each.
        for kind, characters in (
            (language, SOURCE_CHARACTERS * len(text) // len(text.encode())),
            (f"{language}, 2,500 characters", SOURCE_CHARACTERS),
        ):
            row(8, kind, [job(raw, 8, GenerationMode.GROUNDED) for raw in in_language(60, text, joint, characters)])
    row(8, "overlapping in parts", [job(raw, 8, GenerationMode.GROUNDED) for raw in requests(60)])


def row(sources: int, kind: str, jobs: list[JobRequest]) -> None:
    duration_ms = median_ms(lambda job: render(job, AnswerProtocol.SEGMENTS), jobs)
    print(
        f"{sources:<20}{kind:<28}{duration_ms:>8.3f}{'   over the aim' if sources <= 8 and duration_ms > AIM_MS else ''}"
    )


def _ascii(source: SourceContext) -> SourceContext:
    return source.model_copy(update={"content": source.content.encode("ascii", "ignore").decode()})


if __name__ == "__main__":
    main()
