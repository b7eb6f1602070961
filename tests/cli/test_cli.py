"""The command line as a whole: help, exit codes, streams; info, evaluate, presets and demo."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_runs import (
    SMALL,
    Run,
    assert_one_line_error,
    files_below,
    graphs,
    run,
    run_process,
    write_vials,
)
from small_detector import PIXELS, small_detector

from mhpatchcore import __version__
from mhpatchcore.cli import app as app_module
from mhpatchcore.cli.app import app
from mhpatchcore.cli.console import progress_display
from mhpatchcore.demo import dataset as demo_data
from mhpatchcore.demo.dataset import write_demo_dataset
from mhpatchcore.presets import PRESETS

__all__ = ["graphs", "run"]  # fixtures

COMMANDS = (
    *(
        "look",
        "fit",
        "fit-many",
        "score",
        "evaluate",
        "monitor",
        "info",
        "calibrate",
        "update",
        "merge",
        "teach",
        "verdicts",
    ),
    *("export", "bundle", "verify", "serve", "watch", "ranks", "store", "demo"),
    *("benchmark", "ladder", "presets"),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "part.mhpc"
    small_detector().save(path)
    return path


@pytest.fixture(scope="module")
def vials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "vials"
    return write_demo_dataset(root, train=2, good=3, per_defect=1, pixels=PIXELS)


def test_a_fit_prints_json_and_nothing_else(tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "good", 4)
    ran = run_process("fit", folder, "-o", tmp_path / "part.mhpc", *SMALL, "--json")
    assert (ran.code, ran.err) == (0, "")
    facts = json.loads(ran.out)
    assert (facts["images"], facts["rows"]) == (4, 200)
    assert files_below(tmp_path)[-1] == "part.mhpc"


def test_a_user_s_error_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    ran = run_process("fit", tmp_path / "missing", "-o", tmp_path / "part.mhpc")
    assert_one_line_error(ran, 2, "missing")
    assert files_below(tmp_path) == []


def test_a_system_s_error_is_one_line_and_no_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    def refused(path: object) -> None:
        raise PermissionError(13, "Permission denied", "part.mhpc")

    monkeypatch.setattr("mhpatchcore.detector.Detector.load", refused)
    assert_one_line_error(run("info", model), 2, "part.mhpc: Permission denied")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_output_that_cannot_be_written_is_an_error(model: Path) -> None:
    command = f'"{sys.executable}" -m mhpatchcore info "{model}" >/dev/full'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("error: No space left"), done
    assert done.stderr.count("\n") == 1


def test_warnings_do_not_stray_into_the_output(model: Path, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "new", 1)
    (folder / "broken.png").write_bytes(b"no picture")
    command = f'"{sys.executable}" -m mhpatchcore score "{model}" "{folder}" --skip-broken --json 2>&-'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert ["error" in row for row in json.loads(done.stdout)] == [False, True]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_traceback(model: Path, tmp_path: Path, closed: str) -> None:
    folder = write_vials(tmp_path / "new", 2)
    outputs = f'--regions "{tmp_path / "regions.csv"}"'
    command = f'"{sys.executable}" -m mhpatchcore score "{model}" "{folder}" {outputs} {closed}'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "regions.csv").read_text().startswith("image,")


def test_a_reader_that_has_enough_is_no_traceback(model: Path) -> None:
    command = f'"{sys.executable}" -m mhpatchcore info "{model}" | true'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_any_file_name_can_be_printed_to_any_terminal(model: Path, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "good", 1)
    (folder / "000.png").rename(folder / "Fläschchen 1\nround \udcff.png")
    ran = run_process("score", model, folder, PYTHONIOENCODING="ascii")
    assert (ran.code, ran.err) == (0, "")
    assert len(ran.out.splitlines()) == 3
    assert "Fl\\xe4schchen 1\\nround \\udcff.png" in ran.out


def commands_of(app: typer.Typer) -> dict[str, Any]:
    return typer.main.get_command(app).commands  # type: ignore[attr-defined,no-any-return]


def test_the_help_page_names_all_commands_and_exit_codes(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    assert set(commands_of(app)) == {*COMMANDS, "inbox"}
    for words in (
        *COMMANDS,
        "inbox",
        "0 done",
        "1 `score --fail`",
        "2 wrong",
        "3 an image",
        "4 a model",
        "5 backbone",
    ):
        assert words in ran.help
    assert (
        "6 a cell" in ran.help
        and "7 `score`" in ran.help
        and "8 `verify`" in ran.help
        and "130 interrupted" in ran.help
    )
    assert "<bool>" not in ran.help


def test_every_command_explains_itself(run: Run) -> None:
    for command in COMMANDS:
        ran = run(command, "-h")
        assert ran.code == 0 and "Usage: mhpatchcore " + command in ran.help
        assert "<bool>" not in ran.help
    assert "(default: 3%)" in run("fit", "--help").help


def test_the_help_page_starts_with_few_commands(run: Run) -> None:
    page = run("--help").out
    panels = [page.index(title) for title in ("Start", "At the line", "Models", "Many products", "Research")]
    assert panels == sorted(panels)
    start = page[panels[0] : panels[1]]
    for command in ("look", "fit", "score", "evaluate"):
        assert f"│ {command} " in start
    assert len(app_module.COMMANDS["Start"]) <= 12


def test_pages_of_help_import_no_command() -> None:
    """Their lines are the docstrings that `COMMAND --help` begins with."""
    asked = (
        "import sys, typer; from mhpatchcore.cli.app import app\n"
        "root = typer.main.get_command(app); context = typer.Context(root)\n"
        "shown = {n: c.help for n, c in [*root.commands.items(), *root.commands['inbox'].commands.items()]}\n"
        "root.get_help(context), root.commands['inbox'].get_help(context)\n"
        "assert 'numpy' not in sys.modules and all(shown.values())\n"
        "for group in (root, root.commands['inbox']):\n"
        "    for name, command in group.commands.items():\n"
        "        assert name == 'inbox' or (command.callback and command._made().help == command.help), name\n"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_same_option_has_the_same_name_everywhere() -> None:
    options = {name: [one.opts for one in command.params] for name, command in commands_of(app).items()}
    assert not [name for name, flags in options.items() if ["--output"] in flags]
    writing = [flags for name in options for flags in options[name] if "--out" in flags]
    assert len(writing) > 10 and all(set(flags) == {"--out", "-o"} for flags in writing)


def test_paragraphs_of_a_help_page_fill_the_line(run: Run) -> None:
    lines = [line.strip() for line in run("fit", "--help").out.splitlines()]
    first = next(line for line in lines if line.startswith("Only the images and -o are needed"))
    assert len(first) > 80


def test_completion_can_be_installed(run: Run) -> None:
    assert "--install-completion" in run("--help").help


def test_rare_options_are_on_a_page_of_their_own(run: Run) -> None:
    short, whole = run("fit", "--help"), run("fit", "--help-all")
    assert (short.code, whole.code) == (0, 0)
    for option in ("--false-alarm", "--size", "--roi", "--store", "--help-all"):
        assert option in short.help and option in whole.help
    for option in ("--rows", "--shrinkage", "--sigma", "--memory", "--cluster"):
        assert option not in short.help and option in whole.help


def test_a_look_has_no_options_of_the_bank(run: Run) -> None:
    page = run("look", "--help").help
    assert "--size" in page and "--false-alarm" in page
    assert "--rows" not in page and "--shrinkage" not in page


@pytest.mark.parametrize(("theirs", "ours"), [("train", "fit"), ("predict", "score")])
def test_other_tools_names_lead_to_ours(run: Run, theirs: str, ours: str) -> None:
    ran = run(theirs)
    assert ran.code == 2 and f"No such command '{theirs}'. Did you mean '{ours}'?" in ran.help


def test_version(run: Run) -> None:
    assert run("--version").out == f"mhpatchcore {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "Usage"),
        (("paint",), "No such command 'paint'"),
        (("info",), "Missing argument"),
        (("info", "--colour", "red"), "No such option"),
        (("demo", "--train", "1"), "--train"),
    ],
)
def test_wrong_usage_exits_with_2(run: Run, arguments: tuple[str, ...], word: str) -> None:
    ran = run(*arguments)
    assert ran.code == 2 and word in ran.help


def test_interruption_is_said_and_has_its_own_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mhpatchcore.cli.models.read_document", interrupted)
    before = signal.getsignal(signal.SIGINT)
    ran = run("info", model)
    signal.signal(signal.SIGINT, before)
    assert (ran.code, ran.err.strip()) == (130, "interrupted")


def test_a_second_interruption_ends_at_once(model: Path) -> None:
    """While threads are at work: the interpreter would go away under them, and abort."""
    program = (
        "import threading, time, mhpatchcore.cli.models as models, mhpatchcore.cli as cli\n"
        "def interrupted(*_):\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "    raise KeyboardInterrupt\n"
        "models.read_document = interrupted\n"
        "cli.main()\n"
    )
    command = [sys.executable, "-c", program, "info", str(model)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and process.stderr.readline() == "interrupted\n"
        process.send_signal(signal.SIGINT)
        assert (process.wait(30), process.stderr.read()) == (130, "")


def test_output_that_nobody_reads_has_its_own_code(model: Path) -> None:
    """Code 1 would mean that an anomaly was found."""
    command = [sys.executable, "-m", "mhpatchcore", "info", str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.wait(30), process.stderr.read()) == (141, "")


def test_a_pipe_sees_no_bars(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display(quiet=False) as progress:
        progress("extract", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_a_bar_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with progress_display(quiet=False) as progress:
        progress("extract", 1, 2)
        print("on stdout")
    out, err = capsys.readouterr()
    assert out == "on stdout\n"
    assert "reading images" in err and "1/2" in err and "left" in err


def test_info_in_words_and_as_json(run: Run, model: Path) -> None:
    ran = run("info", model)
    assert ran.code == 0
    for word in ("efficientnet_lite0", "200 rows", "8 normal images", "96 × 96", "threshold"):
        assert word in ran.out
    facts = json.loads(run("info", model, "--json").out)
    assert facts["config"] == json.loads(json.dumps(small_detector().config.to_json()))
    assert facts["threshold"] == pytest.approx(small_detector().threshold)
    assert (facts["version"], facts["false_alarm"]) == (__version__, 0.03)


def test_evaluate(run: Run, model: Path, vials: Path, tmp_path: Path) -> None:
    ran = run("evaluate", model, vials)
    assert ran.code == 0 and ran.err == ""
    assert "vials: 3 good and 4 defective images" in ran.out and "by pixel" in ran.out
    report = tmp_path / "report.html"
    facts = json.loads(run("evaluate", model, vials, "--json", "--report", report).out)
    assert facts["image_n_anomalous"] == 4 and 0 <= facts["pixel_auroc"] <= 1
    assert facts["report"] == str(report) and report.stat().st_size > 10_000


def test_evaluate_takes_the_present_folder(
    run: Run, model: Path, vials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(vials)
    assert run("evaluate", model, ".").out.startswith("vials: ")


def test_evaluate_of_good_parts_alone_has_no_curves(run: Run, model: Path, tmp_path: Path) -> None:
    write_vials(tmp_path / "test" / "good", 2)
    ran = run("evaluate", model, tmp_path)
    assert ran.code == 0 and "2 good and 0 defective images" in ran.out and "nan" not in ran.out
    assert json.loads(run("evaluate", model, tmp_path, "--json").out)["image_auroc"] is None


def test_evaluate_warns_of_masks_that_are_missing(run: Run, model: Path, tmp_path: Path) -> None:
    root = write_demo_dataset(tmp_path / "vials", train=1, good=1, per_defect=1, pixels=PIXELS)
    (root / "ground_truth" / "scratch" / "000_mask.png").unlink()
    ran = run("evaluate", model, root, "--json")
    assert ran.err.startswith("warning: no mask for ") and ran.err.count("\n") == 1
    assert len(json.loads(ran.out)["problems"]) == 1


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_evaluate_names_a_data_set_that_is_none(run: Run, model: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    assert_one_line_error(run("evaluate", model, tmp_path / name), 2, name)


def test_presets_are_listed(run: Run) -> None:
    lines = run("presets").out.splitlines()
    assert [line.split()[0] for line in lines] == list(PRESETS)
    assert json.loads(run("presets", "--json").out)["mh"]["K"] == 1000


def test_the_demo_goes_all_the_way(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = partial(write_demo_dataset, good=2, per_defect=1, pixels=PIXELS)
    monkeypatch.setattr(demo_data, "write_demo_dataset", small)
    ran = run("demo", tmp_path / "demo", "--train", 8)
    assert (ran.code, ran.err) == (0, "")
    assert "learnt from 8 images of good vials; tested on 6 others" in ran.out
    made = {path.name for path in (tmp_path / "demo").iterdir()}
    assert made == {"vials", "vials.mhpc", "overview.png", "report.html"}
    assert run("info", tmp_path / "demo" / "vials.mhpc").code == 0
