"""What runs where, of several trials side by side."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autotune.documents import codec
from autotune.domain import GpuUse, Study, TrialState
from autotune.domain.places import GPUS, PLACE, HeldGpu, TrialPlace, place_of
from autotune.ports import Store
from autotune.recommendation.current import status_document
from autotune.recommendation.places import PlaceNow, PlaceState, idle_words, places_now
from autotune.recommendation.reading import StudyReading, read_study
from autotune.store import open_store
from tests.support import factories as f
from tests.support.imports import of
from trainer.child.contract import CurrentPhase, NoteRecord

NAMES = ["GPU 4", "GPU 5", "GPU 6", "GPU 7"]


def uuid(index: int) -> str:
    return f"GPU-{index:08x}"


def begin(store: Store, study: Study, number: int, place: str, *indices: int, **where: str) -> None:
    """Another trial, that runs in a place."""
    trial = store.add_trial(study.id, f.draft(configuration=f.numbered(number)), f.NOW)
    assert trial.number == number
    store.start_attempt(study.id, number, f.NOW)
    if place:
        store.add_note(study.id, number, 1, NoteRecord(PLACE, {"where": place, **where}))
    held = [{"index": index, "uuid": uuid(index)} for index in indices]
    if held:
        store.add_note(study.id, number, 1, NoteRecord(GPUS, {"held": held}))


def four(store: Store) -> Study:
    """A study of four places: two trials run, one place is free, one has a fault."""
    study = store.create_study(f.study_spec(resources=f.resources(gpus=1)), f.NOW)
    store.add_event(study.id, f.event("session_started", data={"at_once": 4, "places": NAMES}))
    begin(store, study, 0, "GPU 4", 4)
    begin(store, study, 1, "GPU 6", 6)
    gpu = {"cycle": GpuUse(samples=9, busy=0.25)}
    store.add_cycle(study.id, 1, 1, f.cycle(0, gpu={"cycle": GpuUse(samples=9, busy=0.5)}))
    store.add_cycle(study.id, 1, 1, f.cycle(1, gpu=gpu))
    fault = "GPU 7: it has fallen off the bus (XID 79)"
    store.add_event(study.id, f.event("gpu_quarantined", f"trials avoid {fault}"))
    store.add_event(study.id, f.event("place_left", "GPU 7 gets no more trials", data={"place": "GPU 7", "why": fault}))
    return study


def read_running(store: Store, study: Study) -> StudyReading:
    """The study while a tuner holds its lock."""
    with store.lock(study.id):
        return read_study(store, study)


@pytest.fixture
def found() -> StudyReading:
    store = open_store(":memory:")
    return read_running(store, four(store))


def test_each_place_has_its_trial_or_is_free_or_left_with_why(found: StudyReading) -> None:
    assert [(p.at.short, p.state.value, p.trial, p.busy) for p in found.places] == [
        ("GPU 4", "running", 0, None),
        ("GPU 5", "free", None, None),
        ("GPU 6", "running", 1, 0.25),
        ("GPU 7", "left", None, None),
    ]
    assert idle_words(found.places) == (
        "GPU 5 is free",
        "GPU 7 gets no more trials: it has fallen off the bus (XID 79)",
    )
    assert found.avoided_gpus == ("trials avoid GPU 7: it has fallen off the bus (XID 79)",)


def test_the_document_has_every_running_trial_with_phase_and_gpus(found: StudyReading) -> None:
    lives = {0: (CurrentPhase("generate", 2, "recorded"), 90.0), 1: None}
    document = json.loads(json.dumps(status_document(found, lives, 100.0)))
    one, two = document["running"]
    assert (one["number"], one["phase"], one["cycle"], one["phase_age_seconds"]) == (0, "generate", 2, 10.0)
    assert one["place"] == {"name": "GPU 4", "node": None, "gpus": [{"index": 4, "uuid": uuid(4)}]}
    assert (two["number"], two["phase"], two["place"]["gpus"][0]["uuid"]) == (1, None, uuid(6))
    assert [p["trial"] for p in document["places"]] == [0, None, 1, None]
    assert document["places"][2]["gpu_busy_share"] == 0.25


def test_a_clock_set_back_gives_no_age_below_zero(found: StudyReading) -> None:
    document = status_document(found, {0: (CurrentPhase("generate", 2, "recorded"), 4000.0), 1: None}, 400.0)
    assert document["running"][0]["phase_age_seconds"] == 0.0


def test_when_the_tuner_has_ended_nothing_has_a_place() -> None:
    store = open_store(":memory:")
    study = four(store)
    for number in (0, 1):
        store.finish_trial(study.id, number, TrialState.COMPLETE, f.domain.Outcome(), f.NOW, 1.0, None)
    assert [p.state for p in read_running(store, study).places].count(PlaceState.FREE) == 3
    store.add_event(study.id, f.event("study_ended", "the study ended"))
    assert read_running(store, study).places == ()
    store.add_event(study.id, f.event("session_started", data={"at_once": 1, "places": [""]}))
    assert read_running(store, study).places == (PlaceNow(TrialPlace(), PlaceState.FREE),), "and no fault is left over"


def test_a_study_of_an_earlier_version_names_no_places() -> None:
    store = open_store(":memory:")
    study = store.create_study(f.study_spec(), f.NOW)
    assert read_running(store, study).places == ()
    store.add_event(study.id, f.event("session_started", data={"wall_s": 60.0}))
    begin(store, study, 0, "")
    (place,) = read_running(store, study).places
    assert (place.at, place.trial, idle_words([place])) == (TrialPlace(), 0, ())


def test_places_of_one_name_on_several_nodes_are_several() -> None:
    trials = [f.trial(n, state=TrialState.RUNNING) for n in (5, 6)]
    running = [(trial, TrialPlace("GPU 0", node=node)) for trial, node in zip(trials, ("a", "b"), strict=True)]
    spots = [TrialPlace("GPU 0", node=node) for node in "abcd"]
    found = places_now(spots, running, {spots[3]: "GPU 0: lost"})
    assert [(p.at.short, p.trial, p.why) for p in found] == [
        ("GPU 0, node a", 5, ""),
        ("GPU 0, node b", 6, ""),
        ("GPU 0, node c", None, ""),
        ("GPU 0, node d", None, "GPU 0: lost"),
    ]


@pytest.mark.parametrize(("notes", "short", "whole"), of("a_place_in_words"))
def test_a_place_in_words(notes: dict[str, Any], short: str, whole: str) -> None:
    place = place_of([NoteRecord("other", {"where": "x"}), *(NoteRecord(n, data) for n, data in notes.items())])
    assert (place.short, place.whole) == (short, whole)


def test_a_server_hands_places_on_as_they_are(found: StudyReading) -> None:
    again = codec.load(StudyReading, codec.dump(found))
    assert again.places == found.places
    assert next(p.at.gpus for p in again.places if p.trial == 1) == (HeldGpu(6, uuid(6)),)
