"""Which of the images that are given are good parts, by their names."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from PIL import Image

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.checks import normals_among, refuse_defects, unlike_good_parts
from mhpatchcore.inputs.sources import Images, gather

MVTEC = (
    "train/good/0.png",
    "train/good/1.png",
    "test/good/2.png",
    "test/cut/3.png",
    "ground_truth/cut/3_mask.png",
)


def write(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 6)).save(root / name)
    return root


def taken(source: Images) -> tuple[list[str], str, list[str]]:
    """The names that are left of a source, the end of its place, and what was told."""
    told: list[str] = []
    given = normals_among(gather(source), told.append)
    return list(given.names), "/".join(Path(given.source).parts[-2:]), told


def test_of_a_whole_data_set_the_normal_training_images_are_taken(tmp_path: Path) -> None:
    root = write(tmp_path / "bottle", *MVTEC)
    names, source, (told,) = taken(root)
    assert (names, source) == (["0.png", "1.png"], "train/good")
    assert "bottle is a whole data set" in told and "2 of 5 images, from train/good" in told


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("train/ok/0.png", "test/ok/1.png", "test/ko/2.png"), ["0.png"]),  # BTAD
        (("train/good/0.png", "validation/good/1.png", "test/bad/2.png"), ["0.png"]),  # MVTec LOCO
        (("train/ok_front/0.png", "train/def_front/1.png", "test/ok_front/2.png"), ["0.png"]),
        (("train/0.png", "train/1.png", "test/bad/2.png"), ["0.png", "1.png"]),
    ],
)
def test_layouts(tmp_path: Path, names: tuple[str, ...], expected: list[str]) -> None:
    assert taken(write(tmp_path / "01", *names))[0] == expected


def test_visa_goes_by_its_split(tmp_path: Path) -> None:
    rows = [
        "object,split,label,image,mask",
        "candle,train,normal,candle/Data/Images/Normal/0.JPG,",
        "candle,test,normal,candle/Data/Images/Normal/1.JPG,",
        "candle,test,anomaly,candle/Data/Images/Anomaly/0.JPG,candle/Data/Masks/Anomaly/0.png",
    ]
    (tmp_path / "split_csv").mkdir()
    (tmp_path / "split_csv" / "1cls.csv").write_text("\n".join(rows) + "\n")
    images = [f"Data/Images/{name}.JPG" for name in ("Normal/0", "Normal/1", "Anomaly/0")]
    root = write(tmp_path / "candle", *images, "Data/Masks/Anomaly/0.png")
    assert taken(root)[:2] == (["0.JPG"], "Images/Normal")


def test_an_archive_of_a_data_set_is_one_too(tmp_path: Path) -> None:
    root = write(tmp_path / "bottle", *MVTEC)
    with zipfile.ZipFile(tmp_path / "bottle.zip", "w") as archive:
        for name in MVTEC:
            archive.write(root / name, f"bottle/{name}")
    assert taken(tmp_path / "bottle.zip")[0] == ["0.png", "1.png"]


def test_files_that_were_picked_are_not_picked_again(tmp_path: Path) -> None:
    root = write(tmp_path / "bottle", *MVTEC)
    picked = [root / "train/good/0.png", root / "test/good/2.png"]
    assert taken(picked) == (["test/good/2.png", "train/good/0.png"], f"{tmp_path.name}/bottle", [])
    assert taken(root / "train")[0] == ["good/0.png", "good/1.png"]


def test_several_data_sets_are_refused(tmp_path: Path) -> None:
    for name in ("bottle", "pill"):
        write(tmp_path / name, *MVTEC)
    with pytest.raises(UserError, match=rf"holds 2 data sets \(bottle, pill\): .*{tmp_path}/bottle"):
        taken(tmp_path)


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (("good/0.png", "bad/1.png"), "bad"),
        (("good/0.png", "cut/1.png"), "cut"),  # whatever that is, it is not good
        (("day1/0.png", "day2/scratch/1.png"), "day2/scratch"),
        (("0.png", "ground_truth/0.png"), "ground_truth"),
        (("0.png", "0_GT.png"), "0_GT.png"),
    ],
)
def test_what_does_not_sound_like_good_parts_is_refused_with_a_cure(
    tmp_path: Path, names: tuple[str, ...], wrong: str
) -> None:
    with pytest.raises(UserError, match=rf"{wrong} in {tmp_path} does not .*all_good=True") as refused:
        refuse_defects(gather(write(tmp_path, *names)))
    assert (f"({tmp_path}/good)" in str(refused.value)) == (names[0] == "good/0.png")


def test_a_folder_of_defects_is_refused_by_its_own_name(tmp_path: Path) -> None:
    for name in ("broken_large", "NOK", "masks"):
        with pytest.raises(UserError, match=rf"{tmp_path}/{name} does not sound"):
            refuse_defects(gather(write(tmp_path / name, "0.png")))


@pytest.mark.parametrize(
    ("names", "source"),
    [
        (("0.png", "label.png", "mask_1.png"), "/parts"),
        (("0.png",), "/data/crack_detection/line_2"),  # what lies above says nothing of these
        (("0.png",), "/data/pcb_defects"),
        (("day1/good/0.png", "day2/good/1.png"), "/parts"),
        (("defect_study/good/0.png",), "/parts"),
        (("no_defects/0.png",), "/parts"),
        (("normal_light/0.png", "uv_light/0.png"), "/parts"),
    ],
)
def test_good_parts_are_not_refused(names: tuple[str, ...], source: str) -> None:
    assert unlike_good_parts(names, source) == []
