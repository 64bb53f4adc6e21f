"""What the faults on a cluster draw, without a cluster."""

from __future__ import annotations

from collections import Counter

from tests.cluster_faults.faults import FAULTS, LAST_OF_A_RUN, RECORDS, Deck


def runs(seed: int, most: int) -> list[list[tuple[int, str]]]:
    deck, left, found = Deck(FAULTS, seed), most, []
    while left:
        drawn = deck.drawn(left)
        left -= len(drawn)
        found.append([(records, fault.name) for records, fault in drawn])
    return found


def test_each_kind_comes_as_often_and_what_ends_the_tuner_last() -> None:
    found = runs(35, 60)
    assert found == runs(35, 60)
    assert found != runs(36, 60)
    counts = Counter(name for run in found for _, name in run)
    assert counts.keys() == {fault.name for fault in FAULTS}
    assert max(counts.values()) - min(counts.values()) <= 1
    for run in found:
        assert [records for records, _ in run] == sorted(records for records, _ in run)
        assert all(1 <= records <= RECORDS for records, _ in run)
        assert not any(name in LAST_OF_A_RUN for _, name in run[:-1])


def test_what_has_not_come_is_drawn_again() -> None:
    deck = Deck(FAULTS, 1)
    first = [fault for _, fault in deck.drawn(1)]
    deck.back(first)
    assert [fault for _, fault in deck.drawn(1)] == first
