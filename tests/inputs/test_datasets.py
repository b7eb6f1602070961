"""Every layout gives the same thing: training images, and test images with labels from their folders."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.datasets import Dataset, Labels, find_categories, load_dataset, read_mask


def write_image(path: Path, size: tuple[int, int] = (8, 6), mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path)
    return path


def write_mvtec(root: Path, good: str = "good", bad: str = "crack") -> Path:
    for i in range(4):
        write_image(root / "train" / good / f"{i:03d}.png")
    for i in range(2):
        write_image(root / "test" / good / f"{i:03d}.png")
        write_image(root / "test" / bad / f"{i:03d}.png")
        write_image(root / "ground_truth" / bad / f"{i:03d}_mask.png", mode="L")
    return root


def labels(dataset: Dataset) -> dict[str, bool]:
    return {f"{sample.path.parent.name}/{sample.path.name}": sample.is_anomalous for sample in dataset.test}


def test_mvtec_layout(tmp_path: Path) -> None:
    dataset = load_dataset(write_mvtec(tmp_path / "bottle"))
    assert dataset.name == "bottle" and not dataset.problems
    assert [path.name for path in dataset.train] == ["000.png", "001.png", "002.png", "003.png"]
    assert labels(dataset) == {
        "crack/000.png": True,
        "crack/001.png": True,
        "good/000.png": False,
        "good/001.png": False,
    }
    assert [sample.mask and sample.mask.name for sample in dataset.test] == [
        "000_mask.png",
        "001_mask.png",
        None,
        None,
    ]
    assert dataset.statistics() == {
        "dataset": "bottle",
        "labels": "image + pixel",
        "train": 4,
        "test": 4,
        "anomalous": 2,
    }


def test_btad_says_ok_and_ko_and_names_masks_like_images(tmp_path: Path) -> None:
    root = write_mvtec(tmp_path / "01", good="ok", bad="ko")
    for path in list((root / "ground_truth" / "ko").iterdir()):
        path.rename(path.with_name(path.name.replace("_mask", "")))
    dataset = load_dataset(root)
    assert len(dataset.train) == 4
    assert [(sample.kind, sample.is_anomalous) for sample in dataset.test] == [("ko", True)] * 2 + [
        ("ok", False)
    ] * 2
    assert all(sample.mask is not None for sample in dataset.test if sample.is_anomalous)


def test_label_comes_from_the_folder_though_the_mask_is_empty(tmp_path: Path) -> None:
    dataset = load_dataset(write_mvtec(tmp_path / "tile"))
    defect = dataset.test[0]
    assert defect.mask is not None and not read_mask(defect.mask, 6, 8).any()
    assert defect.is_anomalous


@pytest.mark.parametrize("missing", ["000", "001"])
def test_missing_mask_is_reported(tmp_path: Path, missing: str) -> None:
    root = write_mvtec(tmp_path / "bottle")
    (root / "ground_truth" / "crack" / f"{missing}_mask.png").unlink()
    dataset = load_dataset(root)
    assert len(dataset.problems) == 1 and f"crack/{missing}.png" in dataset.problems[0]
    assert len(dataset.test) == 4


def test_mask_without_an_image_is_reported(tmp_path: Path) -> None:
    root = write_mvtec(tmp_path / "bottle")
    write_image(root / "ground_truth" / "crack" / "007_mask.png", mode="L")
    (problem,) = load_dataset(root).problems
    assert "007_mask.png" in problem


def test_misshapen_and_broken_masks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"8 × 6, its image 16 × 6"):
        read_mask(write_image(tmp_path / "mask.png", mode="L"), 6, 16)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"broken\.png"):
        read_mask(broken, 6, 8)


def test_visa_split(tmp_path: Path) -> None:
    rows = [
        "object,split,label,image,mask",
        *(f"candle,train,normal,candle/Data/Images/Normal/{i}.JPG," for i in range(3)),
        "candle,test,normal,candle/Data/Images/Normal/3.JPG,",
        "candle,test,anomaly,candle/Data/Images/Anomaly/0.JPG,candle/Data/Masks/Anomaly/0.png",
        "fryum,train,normal,fryum/Data/Images/Normal/0.JPG,",
    ]
    (tmp_path / "split_csv").mkdir()
    (tmp_path / "split_csv" / "1cls.csv").write_text("\n".join(rows) + "\n")
    for name in ("candle", "fryum"):
        (tmp_path / name).mkdir()

    dataset = load_dataset(tmp_path / "candle")
    assert dataset.train == tuple(tmp_path / f"candle/Data/Images/Normal/{i}.JPG" for i in range(3))
    assert [(sample.kind, sample.is_anomalous) for sample in dataset.test] == [
        ("normal", False),
        ("anomaly", True),
    ]
    assert [sample.mask for sample in dataset.test] == [None, tmp_path / "candle/Data/Masks/Anomaly/0.png"]
    assert [path.name for path in find_categories(tmp_path)] == ["candle", "fryum"]


def test_plain_folders_and_gray_images_have_image_labels_only(tmp_path: Path) -> None:
    for i in range(10):
        write_image(tmp_path / "good" / f"{i}.png", mode="L")
    write_image(tmp_path / "scratched" / "a.png", mode="L")
    write_image(tmp_path / "bent" / "b.png", mode="L")
    dataset = load_dataset(tmp_path)
    assert len(dataset.train) == 8
    assert [(sample.kind, sample.is_anomalous) for sample in dataset.test] == [
        ("good", False),
        ("good", False),
        ("bent", True),
        ("scratched", True),
    ]
    assert not set(dataset.train) & {sample.path for sample in dataset.test}
    assert not dataset.has_masks and dataset.statistics()["labels"] == "image"
    assert load_dataset(tmp_path) == dataset


def test_subsets_are_nested_and_depend_on_the_seed_alone(tmp_path: Path) -> None:
    dataset = Dataset("many", tuple(tmp_path / f"{i}.png" for i in range(100)), ())
    sizes = [10, 30, 70, 100]
    subsets = [dataset.subset(n) for n in sizes]
    assert [len(subset.train) for subset in subsets] == sizes
    for smaller, larger in pairwise(subsets):
        assert set(smaller.train) < set(larger.train)
    assert dataset.subset(30) == subsets[1]
    assert dataset.subset(30, seed=1) != subsets[1]
    with pytest.raises(UserError, match="fewer than 101"):
        dataset.subset(101)


def test_categories_below_a_folder(tmp_path: Path) -> None:
    for name in ("pill", "bottle"):
        write_mvtec(tmp_path / name)
    (tmp_path / "notes").mkdir()
    assert [path.name for path in find_categories(tmp_path)] == ["bottle", "pill"]
    assert find_categories(tmp_path / "pill") == [tmp_path / "pill"]


def test_what_cannot_be_a_data_set_is_said_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no data set folder"):
        load_dataset(tmp_path / "nothing")
    with pytest.raises(UserError, match="test/good"):
        load_dataset(tmp_path)
    with pytest.raises(UserError, match="expected category folders"):
        find_categories(tmp_path)
    root = write_mvtec(tmp_path / "bottle")
    for path in list((root / "test").rglob("*.png")):
        path.unlink()
    with pytest.raises(UserError, match="no test images"):
        load_dataset(root)


def test_mask_values(tmp_path: Path) -> None:
    values = np.array([[0, 255], [1, 0]], np.uint8)
    Image.fromarray(values).save(tmp_path / "mask.png")
    assert read_mask(tmp_path / "mask.png", 2, 2).tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize("head", ["name,split,label,image", "object,split,label", ""])
def test_a_split_with_other_columns_is_named(tmp_path: Path, head: str) -> None:
    (tmp_path / "split_csv").mkdir()
    (tmp_path / "candle").mkdir()
    (tmp_path / "split_csv" / "1cls.csv").write_text(f"{head}\na,b,c,d\n")
    for load in (lambda: load_dataset(tmp_path / "candle"), lambda: find_categories(tmp_path)):
        with pytest.raises(UserError, match=r"1cls\.csv has no column"):
            load()


def write_plain(root: Path, *folders: str) -> Path:
    for folder in folders:
        for i in range(5):
            write_image(root / folder / f"{i}.png")
    return root


def kinds(dataset: Dataset) -> dict[str, bool]:
    return {sample.kind: sample.is_anomalous for sample in dataset.test}


def test_a_plain_folder_that_does_not_say_what_it_holds_must_be_named(tmp_path: Path) -> None:
    root = write_plain(tmp_path / "parts", "good", "fresh", "new", "scratched")
    with pytest.raises(
        UserError, match=r"parts/fresh good or defective.*\(fresh, new\).*`good=NAME` or `defect="
    ):
        load_dataset(root)
    with pytest.raises(UserError, match=r"\(new\)"):
        load_dataset(root, Labels(good=["fresh"]))
    dataset = load_dataset(root, Labels(good=["fresh"], defect=["new"]))
    assert kinds(dataset) == {"good": False, "fresh": False, "new": True, "scratched": True}
    assert not any("fresh" in str(path) for path in dataset.train)


def test_below_test_all_but_good_is_a_defect_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    root = write_plain(tmp_path / "parts", "train/good", "test/good", "test/fresh", "test/bent")
    assert kinds(load_dataset(root)) == {"good": False, "fresh": True, "bent": True}
    assert kinds(load_dataset(root, Labels(good=["fresh"]))) == {"good": False, "fresh": False, "bent": True}


@pytest.mark.parametrize(
    "name", ["bad", "NG", "nok", "Rejects", "scratch_2", "broken-large", "anomalous", "defect 1"]
)
def test_clear_words_for_defects(name: str) -> None:
    assert Labels().of(name) is True


@pytest.mark.parametrize("name", ["fresh", "new", "2024", "ngc", "badge", "unchecked", "okay"])
def test_other_words_say_nothing(name: str) -> None:
    assert Labels().of(name) is None


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        (Labels(good=["old"]), "no folder 'old'.* fresh, good"),
        (Labels(good=["fresh"], defect=["fresh"]), "'fresh' cannot hold both"),
        (Labels(good=["fresh"], defect=["good"]), "'good' cannot hold both"),
    ],
)
def test_wrong_names_are_refused(tmp_path: Path, labels: Labels, word: str) -> None:
    with pytest.raises(UserError, match=word):
        load_dataset(write_plain(tmp_path / "parts", "good", "fresh"), labels)


def test_a_model_that_knows_its_images_needs_no_split(tmp_path: Path) -> None:
    dataset = load_dataset(write_plain(tmp_path / "parts", "good", "bad"), split=False)
    assert dataset.train == () and len(dataset.test) == 10
