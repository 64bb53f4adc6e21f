"""What the GPU and the host did, on the page, in the API and for Prometheus: of two trials recorded on an H100."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import pytest

from api.schemas.trials import OneTrial
from autotune.settings import Settings
from tests.support import recorded_gpu
from tests.support.served import Reader, settings_in

BLAMED = "the host: the GPU was busy 51 % of the update while the trial used 1.0 cores all along"
PAGE = "/studies/1/trials/0"


@pytest.fixture(scope="module")
def h100_home(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = settings_in(tmp_path_factory.mktemp("h100"))
    recorded_gpu.stored(settings)
    return settings


@pytest.fixture
def h100(h100_home: Settings) -> Iterator[Reader]:
    reader = Reader(h100_home)
    yield reader
    reader.cache.close()


def section(page: str, name: str) -> str:
    """The words of one part of a page."""
    found = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    assert found is not None, name
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", found[0])).split())


def test_the_page_has_a_row_for_each_phase_and_each_cycle(h100: Reader) -> None:
    page = h100.page(PAGE)
    words = section(page, "usage")
    assert "phase GPU busy GPU memory busy MHz watts cores used generate 69 % 51 % 1973 377 - update 51 % 29 %" in words
    for cycle in ("whole cycle 60 %", "0 warm-up 18 %", "1 sampled 23 %", "5 replayed 67 %"):
        assert cycle in words
    facts = section(page, "facts")
    assert BLAMED in facts
    assert "of what this GPU could do at most" in facts
    assert "9.3 % of the hardware's limit; published runs of" in unescape(h100.page("/studies/1"))
    assert "0.292 J for a completion token, 355 W" in facts


def test_a_trial_of_an_earlier_version_has_no_such_section(finished: Reader) -> None:
    page = finished.page(PAGE)
    assert 'id="usage"' not in page
    assert "None" not in section(page, "facts")


def test_the_comparison_shows_energy_and_busy_shares(h100: Reader) -> None:
    words = " ".join(unescape(re.sub(r"<[^>]*>", " ", h100.page("/studies/1/compare?trial=0&trial=1"))).split())
    assert "GPU busy 60 % 46 %" in words
    assert "GPU power 355 W 311 W" in words
    assert "energy of a token 0.292 J 0.178 J" in words


def test_the_api_tells_the_same_as_its_description_says(h100: Reader) -> None:
    document = h100.json("/api/v1/studies/1/trials/0")
    usage = OneTrial.model_validate(document).trial.usage
    assert usage is not None
    assert usage.blame is not None
    assert (usage.blame.resource.value, usage.blame.phase) == ("host", "update")
    assert usage.blame.sentence.startswith(BLAMED)
    assert usage.joules_per_token == pytest.approx(0.292, abs=0.001)
    assert usage.roofline_share is not None
    assert 0.0 < usage.roofline_share < 0.5
    assert (
        usage.phases["cycle"].gpu.samples == usage.phases["generate"].gpu.samples + usage.phases["update"].gpu.samples
    )
    cycles = h100.json("/api/v1/studies/1/trials/0/cycles?limit=1")["cycles"]
    assert cycles[0]["process"] is None
    assert set(cycles[0]["gpu"]) == {"generate", "update", "cycle"}


def test_prometheus_has_the_use_of_the_configuration_recommended_now(h100: Reader) -> None:
    text = h100.ask("/metrics").text
    assert re.search(r'^autotune_best_gpu_busy_ratio\{study="1",phase="update"\} 0\.51', text, re.MULTILINE)
    assert re.search(r'^autotune_best_joules_per_token\{study="1"\} 0\.177', text, re.MULTILINE)
    assert re.search(r'^autotune_best_gpu_watts\{study="1"\} 311', text, re.MULTILINE)
    assert re.search(r'^autotune_best_cores\{study="1"\} 1\.01', text, re.MULTILINE)


def test_a_study_without_such_figures_has_none_of_these_metrics(finished: Reader) -> None:
    assert "autotune_best_gpu" not in finished.ask("/metrics").text
