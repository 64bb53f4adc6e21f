"""The figures for Prometheus, by the rules of its text format."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.metrics import Metric, exposition
from autotune.domain import Study
from autotune.settings import Settings
from autotune.store import open_store
from tests.support.served import Reader
from tests.unit.recommendation.test_places_of_a_study import NAMES, four, uuid

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """As https://prometheus.io/docs/instrumenting/exposition_formats/ says; fails where the text breaks a rule."""
    assert text.endswith("\n")
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    kinds: dict[str, str] = {}
    helped: set[str] = set()
    last = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in helped, "one HELP a family"
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, "one TYPE, and samples of a family in one group"
            assert NAME.fullmatch(name)
            assert kind in ("counter", "gauge")
            assert (kind == "counter") is name.endswith("_total")
            kinds[name], last = kind, name
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1] == last, "after the TYPE of its own family"
            labels = tuple((m[1], m[2]) for m in LABEL.finditer(match[2] or ""))
            assert ",".join(f'{n}="{v}"' for n, v in labels) == (match[2] or "")
            value = float(match[3])
            assert (match[1], labels) not in found, "no sample twice"
            assert kinds[last] == "gauge" or value >= 0
            found[match[1], labels] = value
    return found


def test_a_study_in_figures(reader: Reader, study: Study) -> None:
    reader.ask("/nowhere")
    answer = reader.ask("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = parsed(answer.text)
    one = ("study", "1")
    assert found["autotune_trials", (one, ("state", "COMPLETE"))] == 2
    assert found["autotune_trial_failures", (one, ("reason", "OOM"))] == 1
    assert found["autotune_spent_wall_seconds_total", (one,)] == 95.0
    assert found["autotune_study_open", (one,)] == 1
    assert found["autotune_tuner_up", (one,)] == 1
    assert found["autotune_best_gain_ratio", (one,)] == pytest.approx(1.0)
    best = reader.json("/api/v1/studies/1/recommendation")["recommendation"]["rows"][0]["tokens_per_hour"]
    assert found["autotune_best_tokens_per_hour", (one,)] == best
    assert found["autotune_http_answers_total", (("status", "404"),)] == 1
    assert found["autotune_listeners", ()] == 0
    assert found["autotune_build_info", (("version", "1.2.3"),)] == 1


def test_before_the_first_study_the_server_alone_is_told_of(reader: Reader) -> None:
    assert {name for name, _ in parsed(reader.ask("/metrics").text)} == {
        "autotune_build_info",
        "autotune_listeners",
        "autotune_readers_cut_off_total",
    }


def test_no_free_text_and_no_trial_is_a_label(finished: Reader) -> None:
    """Each value of a label is a series of its own, kept for ever by who collects them."""
    labels = {name for _, pairs in parsed(finished.ask("/metrics").text) for name, _ in pairs}
    assert labels <= {"study", "state", "reason", "status", "version"}


def test_what_runs_where(reader: Reader, settings: Settings) -> None:
    store = open_store(settings.database)
    four(store)
    with store.lock(1):
        found = parsed(reader.ask("/metrics").text)
    store.close()
    one = ("study", "1")
    running = {name: found["autotune_place_running", (one, ("place", name))] for name in NAMES}
    assert running == {"GPU 4": 1, "GPU 5": 0, "GPU 6": 1, "GPU 7": 0}
    assert [found["autotune_place_left", (one, ("place", name))] for name in NAMES] == [0, 0, 0, 1]
    assert found["autotune_place_trial", (one, ("place", "GPU 6"))] == 1
    assert ("autotune_place_trial", (one, ("place", "GPU 5"))) not in found
    assert found["autotune_place_gpu_busy_ratio", (one, ("place", "GPU 6"))] == 0.25
    gpu = (one, ("place", "GPU 4"), ("gpu", "4"), ("uuid", uuid(4)))
    assert found["autotune_gpu_trial", gpu] == 0


@given(value=st.text(max_size=20), number=st.floats() | st.integers(-(2**60), 2**60))
def test_any_label_and_any_number_keep_the_rules(value: str, number: float) -> None:
    text = exposition([Metric("a", "x\\ny\nz", [({"b": value}, number)])]).decode()
    (key, found), *rest = parsed(text).items()
    assert rest == []
    said = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], key[1][0][1])
    assert said == value.encode("utf-8", "replace").decode()
    assert found == float(number) or (math.isnan(found) and math.isnan(number))
