"""Where the tests of the pages find a browser, and that without one they fail and say what to do."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e import browser


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any; whatever is put into the folder is in PATH."""
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browser, "_of_playwright", lambda: "")
    return tmp_path


def program(path: Path) -> str:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_one_that_is_named_comes_before_the_one_in_path(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_path = program(nowhere / "chromium-browser")
    assert browser.executable() == in_path
    monkeypatch.setenv("CHROMIUM", program(nowhere / "mine"))
    assert browser.executable() == str(nowhere / "mine")
    monkeypatch.setenv("CHROMIUM", str(nowhere / "gone"))
    with pytest.raises(RuntimeError, match="gone is no program"):
        browser.executable()


@pytest.mark.parametrize(
    ("user", "apt", "command"),
    [
        (0, True, "apt-get install -y --no-install-recommends chromium"),
        (0, False, "-m playwright install chromium"),
        (1000, True, "-m playwright install chromium"),
    ],
)
def test_a_missing_one_is_installed_or_the_tests_fail_with_the_command(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, user: int, apt: bool, command: str
) -> None:
    if apt:
        program(nowhere / "apt-get")
    ran: list[str] = []

    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(" ".join(argv))
        return subprocess.CompletedProcess(argv, 1, "", "no network\n")

    monkeypatch.setattr(browser.os, "geteuid", lambda: user)
    monkeypatch.setattr(browser.subprocess, "run", run)
    with pytest.raises(RuntimeError, match=r"need a Chromium: .* failed \(no network\); run it by hand") as caught:
        browser.executable()
    assert len(ran) == 1
    assert ran[0].endswith(command)
    assert command in str(caught.value)

    def installs(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        program(nowhere / "chromium")
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(browser.subprocess, "run", installs)
    assert browser.executable() == str(nowhere / "chromium")
