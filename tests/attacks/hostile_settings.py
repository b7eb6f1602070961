"""Files of settings for `fit --settings`."""

from __future__ import annotations

from pathlib import Path

from recipes import Recipes

from mhpatchcore.cli.options import config_of


def used(path: Path) -> None:
    config_of(path)


SETTINGS = Recipes(used)


def written(folder: Path, text: str) -> Path:
    (folder / "hostile.toml").write_text(text, encoding="utf-8")
    return folder / "hostile.toml"


@SETTINGS.refused
def lists_within_lists(folder: Path) -> Path:
    return written(folder, "K = " + "[" * 10**5)


@SETTINGS.refused
def a_bank_of_more_rows_than_atoms(folder: Path) -> Path:
    return written(folder, "K = 1" + "0" * 80)


@SETTINGS.refused
def a_number_of_a_million_digits(folder: Path) -> Path:
    return written(folder, "K = " + "9" * 10**6)


@SETTINGS.refused
def no_number(folder: Path) -> Path:
    return written(folder, "sigma = nan")


@SETTINGS.refused
def an_infinite_number_of_images(folder: Path) -> Path:
    return written(folder, "calibration_images = inf")


@SETTINGS.refused
def a_view_of_a_million_pixels(folder: Path) -> Path:
    return written(folder, "sizes = [[1000000, 1000000]]")


@SETTINGS.refused
def a_thousand_scales(folder: Path) -> Path:
    return written(folder, f"sizes = {[[32 + i, 32] for i in range(1000)]}")


@SETTINGS.refused
def a_setting_that_is_a_method(folder: Path) -> Path:
    return written(folder, "with_changes = 1\n__class__ = 2")


@SETTINGS.refused
def a_name_that_is_a_command_to_a_terminal(folder: Path) -> Path:
    return written(folder, '"\\u001b[2J" = 1')


@SETTINGS.refused
def bytes_that_are_no_text(folder: Path) -> Path:
    (folder / "hostile.toml").write_bytes(b"\xff\xfe\x00K = 1")
    return folder / "hostile.toml"
