"""`mhpatchcore serve` as it is called wrongly."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from cli_runs import Run, assert_one_line_error, graphs, run  # noqa: F401 (fixtures)
from services import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "vial.mhpc")
    write_model(folder / "other" / "vial.mhpc")
    (folder / "empty").mkdir()
    (folder / "short").write_text("abc")
    (folder / "bad.mhpc").write_bytes(b"no model")
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["empty"], 2, "no model"),
        (["none.mhpc"], 4, "no model file"),
        (["bad.mhpc"], 4, "bad.mhpc"),
        (["vial.mhpc", "other/vial.mhpc"], 2, "same name"),
        (["vial.mhpc", "--host", "0.0.0.0"], 2, "--token-file"),
        (["vial.mhpc", "--token-file", "short"], 2, "token"),
        (["vial.mhpc", "--token-file", "gone"], 2, "token"),
        (["vial.mhpc", "--log-format", "xml"], 2, "text or json"),
        (["vial.mhpc", "--keep-images", "some"], 2, "rejected"),
        (["vial.mhpc", "--keep-images-size", "much"], 2, "size"),
        (["vial.mhpc", "--record", "short"], 2, "--record"),
    ],
)
def test_wrong_usage_is_one_line(
    run: Run,  # noqa: F811
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(folder)
    assert_one_line_error(run("serve", *arguments), code, words)


def test_a_port_that_is_taken_is_one_line(run: Run, folder: Path) -> None:  # noqa: F811
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("serve", folder / "vial.mhpc", "--port", port)
    assert_one_line_error(ran, 2, f"port {port}", "already in use", "--port")
    assert "serving" not in ran.out


def test_a_host_that_is_not_this_machine_is_one_line(run: Run, folder: Path) -> None:  # noqa: F811
    (folder / "secret").write_text("0123456789abcdef")
    (folder / "secret").chmod(0o600)
    ran = run("serve", folder / "vial.mhpc", "--host", "192.0.2.1", "--token-file", folder / "secret")
    assert_one_line_error(ran, 2, "cannot listen at 192.0.2.1", "--host")


def test_a_missing_extra_is_named(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    import sys

    for name in [one for one in sys.modules if one.startswith(("fastapi", "mhpatchcore.deploy"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert_one_line_error(run("serve", folder / "vial.mhpc"), 2, "mhpatchcore[serve]")


@pytest.mark.parametrize("file", ["Dockerfile", "packaging/mhpatchcore.service"])
def test_what_is_packaged_calls_the_command_as_it_is(run: Run, folder: Path, file: str) -> None:  # noqa: F811
    text = (Path(__file__).parents[2] / file).read_text()
    (line,) = re.findall(r'^(?:CMD \["serve", |ExecStart=\S+ serve )(.*?)\]?$', text, re.MULTILINE)
    (folder / "token").write_text("0123456789abcdef")
    (folder / "token").chmod(0o600)
    places = {
        "/models": "empty",
        "%S/mhpatchcore": "empty",
        "/run/secrets/token": "token",
        "%d/token": "token",
    }
    words = [word.strip('",') for word in line.split()]
    arguments = [str(folder / places[word]) if word in places else word for word in words]
    assert_one_line_error(run("serve", *arguments), 2, "no model")


def test_help_names_the_extra(run: Run) -> None:  # noqa: F811
    assert "mhpatchcore[serve]" in run("serve", "--help").help
