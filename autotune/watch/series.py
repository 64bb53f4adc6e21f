"""Reads the lines of a training log into a series of steps, whichever framework wrote them. Pure.

The names of the metrics are the frameworks' own: ``GRPOTrainer`` of TRL (Open-R1's too), ``logging.jsonl`` of ms-swift,
verl's ``console`` and ``file`` loggers. A line may be a Python dictionary behind a progress bar, a line of JSON, verl's
``step:12 - name:value - ...``, or one of the lines of an indented ``trainer_state.json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

GIB = 1 << 30
NAMES: Mapping[str, tuple[str, ...]] = {
    "mean": ("completions/mean_length", "completion_length", "response_length/mean"),
    "longest": ("completions/max_length", "response_length/max"),
    "clipped": ("completions/clipped_ratio", "response_clip_ratio", "response_length/clip_ratio"),
    "seconds": ("step_time", "timing_s/step", "perf/time_per_step"),
    "memory": (
        *("memory(GiB)", "perf/max_memory_allocated_gb", "actor/perf/max_memory_allocated_gb"),
        *("perf/max_memory_reserved_gb", "actor/perf/max_memory_reserved_gb"),
    ),
}
"""Metric of a step -> its names in the frameworks' logs; the first found in a line counts. Memory is the peak since the
run began, in GiB; of verl's two, allocated memory, because reserved memory is freed before an allocation fails."""
_NUMBERS = ("global_step/max_steps", "iteration", "training/global_step", "global_step", "step")
_OTHER = ("elapsed_time", "train_speed(s/it)", "train_speed(iter/s)", "max_steps", "epoch")
_WORDS = "|".join(map(re.escape, (*(name for names in NAMES.values() for name in names), *_NUMBERS, *_OTHER)))
_PAIR = re.compile(
    rf"(?<![\w/(])['\"]?(?:train/)?({_WORDS})['\"]?\s*:\s*(?:np\.\w+\()?['\"]?(-?\d(?:[\d.eE+/-]|[dhms] ?)*)"
)
"""Matches a metric's name and number; the Trainer's callbacks put ``train/`` before the name (``rewrite_logs``)."""
_BAR = re.compile(r"(?:^|Train:)\s*\d+%\|[^|]*\|\s*(\d+)/(\d+) \[([\d:]+)<")
"""Matches the Trainer's progress bar; other bars begin with a description."""
_CAPACITY = re.compile(r"(?:total capacity of |total_gpu_memory \()([\d.]+) ?GiB")
"""Matches the GPU's memory size in PyTorch's out-of-memory error and vLLM's profiling output."""
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|CUDA out of memory")
TELLING = re.compile(
    rb"_length|step_time|train_runtime|timing_s/step|memory\(GiB\)|_clip_ratio|clipped_ratio|\"(?:max_|global_)?step|time_per_step"
    rb"|max_memory_|%\||out of memory|OutOfMemory|total_gpu_memory|^\s*[{}]|\"epoch\""
)
"""Matches lines that are parsed; other lines of a large log are skipped."""
MOST_STEPS = 50_000
"""Most steps kept, more than any published run has; of a longer run, the last ones."""
FEWEST_CONFLICTS, CONFLICTS = 5, 0.2
"""Fewest contradictions of an earlier line of the same step, and their least share of all lines, at which the log
counts as that of two runs; a restart contradicts itself only once."""


@dataclass(frozen=True)
class Step:
    """Figures of one logged optimizer step; ``None``: the log lacks it."""

    number: int
    mean: float | None = None
    """Mean completion length in tokens."""
    longest: float | None = None
    """Longest completion in tokens."""
    clipped: float | None = None
    """Share of completions truncated by the limit, 0..1."""
    seconds: float | None = None
    memory: float | None = None
    """Peak memory since the run began, in bytes."""
    epoch: float | None = None


class Series:
    """Collects the steps of one run, as its lines arrive."""

    def __init__(self) -> None:
        self._steps: dict[int, Step] = {}
        self.last_step: int | None = None
        """Total number of steps, once the log names it."""
        self.capacity: float | None = None
        """GPU memory in bytes, if the log names it."""
        self.out_of_memory_at: int | None = None
        """Last step before an out-of-memory error in the log."""
        self.lines = 0
        """Number of lines with a step's metrics."""
        self.conflicts = 0
        self.restarts: list[tuple[int, int]] = []
        """(last step before, first step after) of each jump back."""
        self._bar: tuple[int, float] | None = None
        self._told: tuple[int, float] | None = None
        self._clock: tuple[int, float] | None = None
        self._pending: dict[str, str] = {}
        self._continues = self._summed_up = False
        self.counted = False
        """True if steps are numbered by their lines, because buffered output has no step numbers."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in order."""
        return tuple(self._steps.values())

    @property
    def mixed(self) -> bool:
        """True if the log contains the lines of two runs."""
        return self.conflicts >= FEWEST_CONFLICTS and self.conflicts >= CONFLICTS * self.lines

    @property
    def ended(self) -> bool:
        """True if the last step, or the Trainer's summary, has been read."""
        return self._summed_up or self.last_step in self._steps

    def begin_anew(self) -> None:
        """Notes that the file was replaced, so that an earlier step in its first line is not a conflict."""
        self._continues, self._pending = True, {}

    def read(self, lines: Iterable[str]) -> None:
        """Reads further complete lines, in order."""
        for line in lines:
            self._read(line)

    def _read(self, line: str) -> None:
        if found := _CAPACITY.search(line):
            self.capacity = float(found[1]) * GIB
        if self._steps and _OUT_OF_MEMORY.search(line):
            self.out_of_memory_at = next(reversed(self._steps))
        self._summed_up |= "train_runtime" in line
        if found := _BAR.search(line):
            self._bar = int(found[1]), _clock_seconds(found[3])
            self.last_step = None if self.counted else int(found[2])
        pairs: dict[str, str] = {}
        for name, value in _PAIR.findall(line):
            pairs.setdefault(name, value)
        bare = line.strip()
        if bare.startswith('"') and len(pairs) == 1:  # of an indented JSON file
            self._pending.update(pairs)
        elif bare[:1] in "{}" and len(bare) <= 2:
            self._take(self._pending)
            self._pending = {}
        elif pairs:
            self._take(pairs)

    def _take(self, pairs: Mapping[str, str]) -> None:
        if "max_steps" in pairs:
            self.last_step = int(float(pairs["max_steps"]))
        found = {figure: _first(pairs, names) for figure, names in NAMES.items()}
        if found["mean"] is None and found["seconds"] is None:
            return
        memory, epoch = found.pop("memory"), _first(pairs, ("epoch",))
        number = self._number(pairs, epoch)
        step = Step(number, **found, memory=None if memory is None else memory * GIB, epoch=epoch)
        self.lines += 1
        if step.seconds is None:
            step = replace(step, seconds=self._seconds(number, pairs))
        self._put(step)

    def _number(self, pairs: Mapping[str, str], epoch: float | None) -> int:
        """Returns a line's step: its own number, else that of the progress bar before it, else a count of lines."""
        for name in _NUMBERS:
            if name in pairs:
                number, _, of = pairs[name].partition("/")
                self.last_step = int(of) if of.isdigit() else self.last_step
                return int(float(number))
        bar, told, self._told = self._bar, self._told, self._bar
        if bar is not None and bar[0] > 0 and not self.counted:
            if told != bar or not self._steps:
                return bar[0]
            self._count()
        earlier = [step.number for step in self._steps.values() if epoch is None or (step.epoch or 0.0) < epoch]
        return max(earlier, default=0) + 1

    def _count(self) -> None:
        """Counts the steps by their lines: output was buffered if two lines follow one state of the progress bar."""
        self.counted, self.last_step, self._clock = True, None, None
        steps = list(self._steps.values())
        self._steps = {place: replace(s, number=place, seconds=None) for place, s in enumerate(steps, start=1)}

    def _seconds(self, number: int, pairs: Mapping[str, str]) -> float | None:
        """Returns the seconds per step since the previous line, from the logged time since the start."""
        elapsed = _elapsed(number, pairs)
        if elapsed is None and self._bar is not None and self._bar[0] == number and not self.counted:
            elapsed = self._bar[1]
        before, self._clock = self._clock, self._clock if elapsed is None else (number, elapsed)
        if elapsed is None or before is None or number <= before[0] or elapsed <= before[1]:
            return None
        return (elapsed - before[1]) / (number - before[0])

    def _put(self, step: Step) -> None:
        last = next(reversed(self._steps), None)
        known = self._steps.get(step.number)
        if last is not None and known is None and step.number < last:
            self._jump_back(last, step.number)
        elif known is not None and last is not None:
            differs = any(a is not None and b is not None and a != b for a, b in _both(known, step))
            if differs and step.number < last:
                self._jump_back(last, step.number)
            elif differs and not self._continues:
                self.conflicts += 1
            else:
                step = Step(step.number, *(b if b is not None else a for a, b in _both(known, step)))
        self._continues = False
        self._steps[step.number] = step
        if len(self._steps) > MOST_STEPS:
            del self._steps[next(iter(self._steps))]

    def _jump_back(self, last: int, number: int) -> None:
        """Forgets the steps from ``number`` on, which the run repeats."""
        if not self._continues:
            self.conflicts += 1
            self.restarts.append((last, number))
        for each in [each for each in self._steps if each >= number]:
            del self._steps[each]


def _both(a: Step, b: Step) -> list[tuple[float | None, float | None]]:
    return [(getattr(a, name), getattr(b, name)) for name in list(Step.__dataclass_fields__)[1:]]


def _first(pairs: Mapping[str, str], names: Iterable[str]) -> float | None:
    for name in names:
        try:
            return float(pairs[name])
        except (KeyError, ValueError):
            continue
    return None


def _elapsed(number: int, pairs: Mapping[str, str]) -> float | None:
    """Returns the seconds since ms-swift's run started. The printed time is rounded to seconds or minutes, so the mean
    seconds per step, times the steps since the last start, replace it."""
    spent = pairs.get("elapsed_time")
    if spent is None:
        return None
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    shown = sum(float(n) * units[unit] for n, unit in re.findall(r"(\d+)([dhms])", spent))
    each, rate = _first(pairs, ("train_speed(s/it)",)), _first(pairs, ("train_speed(iter/s)",))
    each = each or (1.0 / rate if rate else None)
    if each is None:
        return shown
    return each * (number if abs(each * number - shown) <= 60.0 else round(shown / each))


def _clock_seconds(text: str) -> float:
    """Returns the seconds of ``1:02:03``."""
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60.0 * seconds + float(part or 0)
    return seconds
