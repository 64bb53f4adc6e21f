"""How a database is named to people and by them: its password is neither shown nor taken from the command line."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.settings import Settings, read_settings, shown
from tests.support.imports import of

HOME = Path("/home/of/nobody")
ENVIRONMENT = {"AUTOTUNE_DATABASE": "postgresql://me:secret@db/tuning"}


@pytest.mark.parametrize(("given", "expected"), of("a_database_is_shown_without_what_is_secret"))
def test_a_database_is_shown_without_what_is_secret(given: str, expected: str) -> None:
    assert shown(given) == expected


@given(st.text(min_size=3).map(lambda text: f"S{text}E"), st.booleans())
def test_no_password_is_ever_shown(secret: str, quoted: bool) -> None:
    """Not even one that should have been written with %40 and the like."""
    word = quote(secret, safe="") if quoted else secret
    settings = Settings(read_settings({}, HOME).home, f"postgresql://me:{word}@db/tuning")
    for text in (settings.database_shown, repr(settings)):
        assert word not in text
        assert quoted or not any(
            piece in text for piece in secret.split("@") if len(piece) > 2 and piece not in "db/tuning"
        )


@given(st.text(st.characters(exclude_characters="@"), min_size=1))
def test_a_password_is_refused_on_the_command_line_whatever_it_is(secret: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_settings({}, HOME, f"postgresql://me:{secret}@db/tuning")
    assert "PGPASSWORD" in str(caught.value)


@pytest.mark.parametrize(
    "given",
    ["postgresql://me@db:5432/tuning", "postgresql://db/tuning?sslkey=/home/me/key.pem", "/tmp/x.sqlite", "x:y.sqlite"],
)
def test_what_holds_no_password_is_taken_and_goes_before_the_environment(given: str) -> None:
    assert read_settings(ENVIRONMENT, HOME, given).database == given


@pytest.mark.parametrize("given", [None, "", "  "])
def test_without_the_option_the_environment_counts_then_the_home(given: str | None) -> None:
    assert read_settings(ENVIRONMENT, HOME, given).database == ENVIRONMENT["AUTOTUNE_DATABASE"]
    plain = read_settings({}, HOME, given)
    assert plain.own_database
    assert plain.database_shown == str(HOME / "autotune.sqlite")
