"""What `autotune export` writes can be had from a server too."""

from api.schemas.answers import Export
from autotune.domain import Study
from tests.support.served import Reader

PATH = "/api/v1/studies/1/export"


def test_over_http_it_is_typed_and_conditional(finished: Reader) -> None:
    answer = finished.ask(PATH)
    found = Export.model_validate(answer.json())
    assert {file.name for file in found.files} >= {"grpo.yaml", "run.sh", "README.md"}
    assert [file.name for file in found.files if file.executable] == ["run.sh"]
    assert finished.ask(PATH, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    assert finished.ask(f"{PATH}?trial=0&native_only=true").status_code == 422
    assert finished.ask(f"{PATH}?row=3").status_code == 422
    assert finished.ask(f"{PATH}?trial=99999").status_code == 409
    assert finished.ask("/api/v1/studies/9/export").status_code == 404
    assert finished.crashes == []


def test_what_failed_is_not_exported(reader: Reader, study: Study) -> None:
    for number, words in ((2, "failed"), (3, "has not ended")):
        answer = reader.ask(f"{PATH}?trial={number}")
        assert (answer.status_code, words in answer.json()["detail"]) == (409, True)
