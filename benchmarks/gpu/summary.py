"""The summary of a table, as lines of Markdown. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from autotune.domain import Configuration, CycleRecord, Gain, Trial
from autotune.insights.roofline import ideal_rate
from autotune.machine.data_sheets import Hardware, sheet_of
from autotune.statistics import evidence
from benchmarks.gpu.table import Finished
from search_spaces.knobs.model import show

TRIED = "Made to try the command, not to measure: no figure of it says anything about a GPU."
DEFAULTS, COMPETENT = "TRL's defaults", "vLLM colocated, else TRL's defaults"
PHASES = ("generate", "reward", "logprob", "update", "sync", "wait", "idle")
NONE = "-"


def summary(finished: Finished) -> Iterator[str]:
    """Line by line; ``{table}`` stands for the table's file name."""
    wanted = finished.run.wanted
    yield from (f"# {wanted.architecture.name} on {finished.device}", "")
    if not finished.real:
        yield from (f"**{TRIED}**", "")
    if not finished.complete:
        yield from (f"**Not complete: {len(finished.trials)} of {finished.planned} planned trials.**", "")
    yield "Each line of `{table}` is one real trial; the first line says what they have in common."
    yield from ("", *_conditions(finished))
    yield from ("", "## Gain", "", *_gains(finished))
    yield from ("", "## Share of the roofline", "", *_shares(finished))
    yield from ("", "## Phases and peaks", "", *_phases(finished))
    yield from ("", "## Failures", "", *_failures(finished.trials))
    yield from ("", "## Drift", "", _drift(finished))
    yield from ("", "## GPU tests", "", *_checks(finished))
    left_out = [f"- {line}" for line in finished.run.missing()]
    yield from ("", "## Left out", "", *(left_out or ["Nothing of the space."]))


def _conditions(finished: Finished) -> Iterator[str]:
    run, workload, lengths = finished.run, finished.run.spec.workload, finished.run.lengths()
    software = ", ".join(f"{name} {version}" for name, version in sorted(run.fingerprint.software.items()))
    yield f"- Random weights of {run.wanted.architecture.name} ({run.wanted.architecture.parameters:,} parameters)."
    recorded = "none recorded"
    if lengths:
        recorded = (
            f"{sum(lengths) / len(lengths):.0f} in the mean and {max(lengths)} at most, recorded from natural ones"
        )
    yield (
        f"- {workload.rows_per_update} rows per update; prompts of up to {workload.max_prompt_length} tokens, "
        f"completions of up to {workload.max_completion_length}: {recorded}."
    )
    yield "- Trials: " + ", ".join(f"{n} {role}" for role, n in Counter(finished.roles).most_common()) + "."
    yield f"- Driver {run.fingerprint.hardware.get('driver') or 'none'}; {software}."
    yield f"- Fingerprint `{run.fingerprint.digest[:16]}`."


def named(finished: Finished) -> list[tuple[str, Configuration]]:
    """What is compared; a configuration may have several names."""
    competent = finished.first("competent")
    leaders = evidence.leaders(finished.trials, finished.run.spec.baseline, "trl")
    return [
        (DEFAULTS, finished.run.spec.baseline),
        *([(COMPETENT, competent)] if competent is not None else []),
        *((f"best, {leader.row.value}", leader.configuration) for leader in leaders),
    ]


def _distinct(finished: Finished) -> list[tuple[str, Configuration]]:
    """Each configuration once, under all its names."""
    found: dict[Configuration, list[str]] = {}
    for name, configuration in named(finished):
        found.setdefault(configuration, []).append(name)
    return [(" = ".join(names), configuration) for configuration, names in found.items()]


def _gains(finished: Finished) -> Iterator[str]:
    everyone = named(finished)
    bases = [row for row in everyone if row[0] in (DEFAULTS, COMPETENT)]
    best = everyone[len(bases) :]
    if len(bases) == 1:
        yield from (
            "There is no competent default to compare with: vLLM cannot be used here (see what was left out).",
            "",
        )
    yield "| | over | gain | 95 % interval | rounds |"
    yield "| --- | --- | --- | --- | --- |"
    for name, configuration in best:
        for base, over in bases:
            found = evidence.gain(finished.trials, configuration, over)
            yield f"| {name} | {base} | {'the same' + _BLANK if configuration == over else _gain(found)} |"
    for name, configuration in best:
        changed = configuration.difference(finished.run.spec.baseline)
        knobs = ", ".join(f"{knob} {show(there)} → {show(here)}" for knob, (here, there) in changed.items())
        yield from ("", f"{name[0].upper()}{name[1:]}: {knobs or 'as the defaults'}.")


_BLANK = " | | "


def _gain(gain: Gain | None) -> str:
    if gain is None:
        return "not measured: one of the two failed" + _BLANK
    rounds = str(gain.pairs) if gain.pairs else "0: not confirmed, so flattered by having been chosen"
    return f"{gain.value + 1:.2f}× | {gain.low + 1:.2f} to {gain.high + 1:.2f} | {rounds}"


def _shares(finished: Finished) -> Iterator[str]:
    peak = sheet_of(finished.device) if finished.run.wanted.device == "cuda" else None
    lengths, held = finished.run.lengths(), evidence.feasible(finished.trials)
    if peak is None or not lengths:
        yield f"Not stated: {'nothing was measured' if peak else f'no roofline is known for {finished.device}'}."
        return
    yield "| | tokens/hour | the most the GPU could give | share |"
    yield "| --- | --- | --- | --- |"
    for name, configuration in _distinct(finished):
        if configuration in held:
            cycles = [c for t in evidence.basis(held[configuration]) for c in t.speed_cycles()]
            prompt = sum(c.prompt_tokens for c in cycles) / sum(c.rows for c in cycles)
            passes = int(any(c.phases.get("logprob", 0.0) > 0 for c in cycles))
            most = ideal_rate(finished.run.wanted.architecture, peak, prompt, lengths, passes)
            rate = evidence.speed(held[configuration])
            yield f"| {name} | {rate:,.0f} | {most:,.0f} | {rate / most:.1%} |"
    yield ""
    yield f"The most is {share_sentence(peak)}"


def _phases(finished: Finished) -> Iterator[str]:
    held = evidence.feasible(finished.trials)
    yield "| | seconds a cycle | " + " | ".join(PHASES) + " | allocated | reserved | used | host |"
    yield "| --- " * (6 + len(PHASES)) + "|"
    for name, configuration in _distinct(finished):
        for trial in held.get(configuration, ())[-1:]:
            cycles = trial.speed_cycles()
            whole = sum(c.seconds for c in cycles)
            shares = " | ".join(f"{sum(c.phases.get(p, 0.0) for c in cycles) / whole:.0%}" for p in PHASES)
            peaks = " | ".join(_gib(figure) for figure in _highest(trial.cycles))
            yield f"| {name} | {whole / len(cycles):.2f} | {shares} | {peaks} |"
    yield ""
    yield "Allocated and reserved by torch, used by the driver's word, host over the process tree: the highest of any"
    yield "cycle, the warm-up's longest rows included, in GiB."


def _highest(cycles: Sequence[CycleRecord]) -> list[int | None]:
    peaks = [peak for cycle in cycles for peak in cycle.peaks.values()]
    columns = (
        [p.device_allocated for p in peaks],
        [p.device_reserved for p in peaks],
        [p.device_used for p in peaks],
        [p.host for p in peaks],
    )
    return [max((figure for figure in column if figure is not None), default=None) for column in columns]


def _gib(figure: int | None) -> str:
    return NONE if figure is None else f"{figure / 2**30:.2f}"


def _failures(trials: Sequence[Trial]) -> Iterator[str]:
    counts = Counter(
        (o.reason.value, o.phase or NONE, o.pool.value if o.pool else NONE)
        for t in trials
        if (o := t.outcome) is not None and o.reason is not None
    )
    if not counts:
        yield f"None of {len(trials)} trials failed."
        return
    yield "| reason | phase | pool | trials |"
    yield "| --- | --- | --- | --- |"
    for (reason, phase, pool), count in sorted(counts.items()):
        yield f"| {reason} | {phase} | {pool} | {count} |"
    yield from ("", f"{sum(counts.values())} of {len(trials)} trials; each one's message stands in the table.")


def _drift(finished: Finished) -> str:
    rates = [r for t in finished.trials if t.configuration == finished.run.spec.baseline and (r := t.tokens_per_hour)]
    if len(rates) < 2:
        return "The defaults were measured fewer than twice, so a drift would not be seen."
    apart, last = max(rates) / min(rates) - 1, rates[-1] / rates[0] - 1
    return (
        f"The defaults were measured {len(rates)} times over the run, from {min(rates):,.0f} to {max(rates):,.0f} "
        f"tokens/hour ({apart:.1%} apart); the last against the first {last:+.1%}."
    )


def _checks(finished: Finished) -> Iterator[str]:
    if finished.unchecked:
        yield f"Not run: {finished.unchecked}."
    for row in finished.checks:
        yield f"- {row['file']}: {row['passed']} passed, {len(row['failed'])} failed, {len(row['skipped'])} skipped."
        yield from (f"  - {said}" for said in (*row["failed"], *row["skipped"]))


def share_sentence(peak: Hardware) -> str:
    """One sentence that defines the roofline a share refers to."""
    flops, bandwidth = f"{peak.rate('bf16') / 1e12:.0f} TFLOP/s in bf16", f"{peak.bandwidth / 1e12:.2f} TB/s"
    return (
        "a roofline (`autotune/insights/roofline.py`: Williams et al. 2009, with the FLOP counts of Kaplan et "
        f"al. 2020) at {flops} and {bandwidth}, all rows decoded together and nothing ever waiting."
    )
