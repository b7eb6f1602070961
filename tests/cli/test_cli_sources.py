"""Deep images, stacks, archives, lists and videos all the way: fit, score, update, evaluate, explain, reports."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli_runs import SMALL, Ran, Run, assert_one_line_error, files_below, graphs, run, write_vials
from PIL import Image
from same_model import assert_same_model
from small_detector import small_detector, vials

from mhpatchcore import Config, Detector
from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.places import stacked
from mhpatchcore.inputs.window import Window

__all__ = ["graphs", "run"]  # fixtures


def names(ran: Ran) -> list[str]:
    return [row["image"] for row in json.loads(ran.out)]


def scores(ran: Ran) -> list[float]:
    return [row["score"] for row in json.loads(ran.out)]


def write_deep(folder: Path, n: int, first: int = 0, black: int = 200, steps: int = 10) -> Path:
    """Gray parts with 12 bits in files of 16."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, pixels in enumerate(vials(first, n), start=first):
        gray = pixels.mean(axis=2)
        Image.fromarray((black + steps * gray).astype(np.uint16)).save(folder / f"{seed:03d}.png")
    return folder


def write_frames(root: Path, n: int, below: str = "", first: int = 0) -> list[Path]:
    """Two cameras that see the same parts: their red and their blue."""
    folders = [root / "cam0", root / "cam1"]
    for seed, pixels in enumerate(vials(first, n), start=first):
        for folder, channel in zip(folders, (0, 2), strict=True):
            (folder / below).mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.ascontiguousarray(pixels[:, :, channel])).save(
                folder / below / f"{seed:03d}.png"
            )
    return folders


def test_deep_images_all_the_way(run: Run, tmp_path: Path) -> None:
    data, model = tmp_path / "parts", tmp_path / "part.mhpc"
    write_deep(data / "train/good", 6)
    write_deep(data / "test/good", 2, first=20)
    write_deep(data / "test/scratch", 2, first=30)
    ran = run("fit", data / "train/good", "-o", model, *SMALL, "--report", tmp_path / "fit.html")
    assert ran.code == 0, ran
    window = Detector.load(model).config.window
    assert isinstance(window, Window) and window.depth == "16-bit"
    assert 0 < window.low < 700 and 1500 < window.high < 3000  # of 200 to 2750
    ran = run("score", model, data / "test", "--json", "--heatmaps", tmp_path / "maps", "--explain", tmp_path / "why",
              "--explain-all")  # fmt: skip
    assert ran.code == 0 and len(scores(ran)) == 4
    assert len(files_below(tmp_path / "maps")) == len(files_below(tmp_path / "why")) == 4
    picture = np.asarray(Image.open(tmp_path / "maps/good/020.png"))[:60, :60]
    assert picture.max() - picture.min() > 100  # neither black nor white
    evidence = json.loads(ran.out)[0]["evidence"]["places"][0]["nearest"][0]
    assert evidence["file"] is not None
    ran = run("update", model, write_deep(tmp_path / "more", 2, first=40), "-o", tmp_path / "new.mhpc")
    assert ran.code == 0 and Detector.load(tmp_path / "new.mhpc").config.window == window
    ran = run("evaluate", model, data, "--report", tmp_path / "report.html")
    assert ran.code == 0, ran
    ran = run("score", model, write_vials(tmp_path / "shallow", 1), data / "test/good", "--json")
    assert ran.code == 3 and "000.png is 8-bit, and the model is for 16-bit images" in ran.err


def test_the_window_does_not_hang_on_how_the_work_is_done(run: Run, tmp_path: Path) -> None:
    data = write_deep(tmp_path / "good", 9)
    for name, way in (("a", ("--workers", 1)), ("b", ("--workers", 3, "--batch", 4))):
        assert run("fit", data, "-o", tmp_path / f"{name}.mhpc", *SMALL, *way).code == 0
    assert_same_model(*(Detector.load(tmp_path / f"{name}.mhpc") for name in "ab"))


def test_a_window_may_be_given(run: Run, tmp_path: Path) -> None:
    data, model = write_deep(tmp_path / "good", 4), tmp_path / "part.mhpc"
    assert run("fit", data, "-o", model, *SMALL, "--window", "100,3000").code == 0
    assert Detector.load(model).config.window == Window(100, 3000, "16-bit")
    ran = run("fit", data, "-o", model, *SMALL, "--window", "3000,100")
    assert_one_line_error(ran, 2, "window", "lower value first")


def test_stacks_all_the_way(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_frames(tmp_path, 6, "train/good")
    write_frames(tmp_path, 2, "test/good", first=20)
    write_frames(tmp_path, 2, "test/scratch", first=30)
    ran = run("fit", "--stack", "cam0/train/good", "cam1/train/good", "-o", "part.mhpc", *SMALL)
    assert ran.code == 0, ran
    detector = Detector.load("part.mhpc")
    assert detector.config.window == Window(0, 255, "8-bit", 2)
    assert detector.model.images[:2] == ("000.png", "001.png")
    ran = run("score", "part.mhpc", "--stack", "cam0/test/*/*.png", "cam1/test/*/*.png", "--json", "--heatmaps", "maps",
              "--explain", "why", "--explain-all")  # fmt: skip
    assert ran.code == 0, ran
    assert names(ran)[0] == "{cam0/test,cam1/test}/good/020.png"
    assert json.loads(ran.out)[0]["evidence"]["places"][0]["nearest"][0]["file"] is not None
    assert files_below(tmp_path / "maps")[0] == "good/020.png"
    both = np.stack([np.asarray(Image.open(f"cam{i}/test/good/020.png")) for i in range(2)], axis=2)
    assert detector.score(both).score == scores(ran)[0]
    more = write_frames(tmp_path / "more", 2, first=40)
    ran = run("update", "part.mhpc", "--stack", *more, "-o", "new.mhpc")
    assert ran.code == 0 and len(Detector.load("new.mhpc").model.images) == 8
    ran = run("evaluate", "part.mhpc", "--stack", "cam0", "cam1", "--json", "--report", "report.html")
    assert ran.code == 0 and json.loads(ran.out)["image_n_normal"] == 2
    ran = run("calibrate", "part.mhpc", "--with", "more/{cam0,cam1}", "-o", "new.mhpc")
    assert ran.code == 0, ran
    ran = run("score", "part.mhpc", "cam0/test/good/020.png")
    assert ran.code == 3 and "one frame, and the model is for a stack of 2 frames" in ran.err
    Path("cam1/test/good/021.png").unlink()
    told = ("cam1/test/good has no frame 021.png", "cam0/test/good")
    assert_one_line_error(run("score", "part.mhpc", "--stack", "cam0/test/good", "cam1/test/good"), 2, *told)
    assert_one_line_error(
        run("evaluate", "part.mhpc", "--stack", "cam0", "cam1"), 2, "no frame test/good/021.png"
    )
    assert_one_line_error(run("evaluate", "part.mhpc", "cam0", "cam1"), 2, "one data set", "--stack")


def test_an_archive_gives_the_model_of_its_folder(run: Run, tmp_path: Path) -> None:
    good = write_vials(tmp_path / "good", 5)
    with zipfile.ZipFile(tmp_path / "good.zip", "w") as archive:
        for path in good.iterdir():
            archive.write(path, path.name)
    for name in ("good", "good.zip"):
        assert run("fit", tmp_path / name, "-o", tmp_path / f"{name}.mhpc", *SMALL).code == 0
    detectors = [Detector.load(tmp_path / f"{name}.mhpc") for name in ("good", "good.zip")]
    assert_same_model(*detectors)
    new = vials(30, 1)[0]
    Image.fromarray(new).save(tmp_path / "new.png")
    ran = run(
        "score", tmp_path / "good.zip.mhpc", tmp_path / "good.zip", "--json", "--heatmaps", tmp_path / "maps"
    )
    assert names(ran)[0] == f"{tmp_path}/good.zip/000.png" and len(files_below(tmp_path / "maps")) == 5
    patch = detectors[1].explain(tmp_path / "new.png").places[0].nearest[0]
    assert patch.file is not None and patch.file.startswith(f"{tmp_path}/good.zip/")


def test_a_list_is_learnt_like_its_images(run: Run, tmp_path: Path) -> None:
    write_vials(tmp_path / "parts", 6)
    (tmp_path / "list.csv").write_text("image\n" + "".join(f"parts/{i:03d}.png\n" for i in (4, 0, 2)))
    assert run("fit", tmp_path / "list.csv", "-o", tmp_path / "part.mhpc", *SMALL).code == 0
    assert Detector.load(tmp_path / "part.mhpc").model.images == ("000.png", "002.png", "004.png")


def test_a_video(run: Run, tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    video, model = tmp_path / "line.avi", tmp_path / "part.mhpc"
    writer = cv2.VideoWriter(str(video), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 64))
    for pixels in vials(0, 9):
        writer.write(pixels[:, :, ::-1])
    writer.release()
    assert run("fit", video, "--every", 2, "-o", model, *SMALL, "--workers", 2).code == 0
    assert Detector.load(model).model.images == ("000000", "000002", "000004", "000006", "000008")
    ran = run("score", model, video, "--every", 4, "--json", "--heatmaps", tmp_path / "maps")
    assert names(ran) == [f"{video}/{i:06d}" for i in (0, 4, 8)]
    assert files_below(tmp_path / "maps") == ["000000.png", "000004.png", "000008.png"]


def test_a_function_and_a_memory_map_give_the_model_of_a_list(tmp_path: Path) -> None:
    normals, config = vials(0, 8), Config(sizes=96, K=200, augment="none")  # type: ignore[arg-type]
    np.save(tmp_path / "all.npy", np.stack(normals))
    for source in (lambda: iter(normals), np.load(tmp_path / "all.npy", mmap_mode="r")):
        detector = Detector.fit(source, config)
        assert_same_model(detector, small_detector())
        results = detector.score(source)  # type: ignore[call-overload]
        assert [result.score for result in results] == [small_detector().score(one).score for one in normals]


@pytest.mark.parametrize("kind", ["uint16", "float32", "float64"])
def test_deep_arrays(kind: str) -> None:
    def deep(first: int, n: int) -> list[np.ndarray]:
        return [(pixels * (20.0 if kind == "uint16" else 0.01)).astype(kind) for pixels in vials(first, n)]

    detector = Detector.fit(deep(0, 8), Config(sizes=96, K=200, augment="none"))  # type: ignore[arg-type]
    assert detector.score(deep(20, 1)[0]).score == pytest.approx(
        small_detector().score(vials(20, 1)[0]).score, rel=0.5
    )
    with pytest.raises(ImageError, match="is 8-bit, and the model is for"):
        detector.score(vials(20, 1)[0])


def test_rank_images_from_folders_and_by_name(run: Run, tmp_path: Path) -> None:
    for part in ("p1", "p.2"):
        write_vials(tmp_path / "sequences" / part, 4)
    ran = run("ranks", tmp_path / "sequences", "-o", tmp_path / "ranks")
    assert ran.code == 0 and "rank images of 2 parts" in ran.out and "next: mhpatchcore fit" in ran.out
    assert files_below(tmp_path / "ranks") == ["p.2.tif", "p1.tif"]
    folders = [write_vials(tmp_path / f"frame{i}", 2) for i in range(3)]
    assert run("ranks", "--stack", *folders, "-o", tmp_path / "others").code == 0
    assert files_below(tmp_path / "others") == ["000.tif", "001.tif"]
    assert run("fit", tmp_path / "ranks", "-o", tmp_path / "part.mhpc", *SMALL).code == 0
    assert Detector.load(tmp_path / "part.mhpc").config.window == Window(0, 255, "8-bit", 3)
    (tmp_path / "frame1" / "001.png").unlink()
    assert_one_line_error(
        run("ranks", "--stack", *folders, "-o", tmp_path / "x"), 2, "frame1 has no frame 001.png"
    )
    assert_one_line_error(
        run("ranks", write_vials(tmp_path / "two", 2), "-o", tmp_path / "x"), 3, "at least 3 frames"
    )
    write_vials(tmp_path / "again" / "p1", 3)
    told = "would both be called p1"
    assert_one_line_error(
        run("ranks", tmp_path / "sequences", tmp_path / "again", "-o", tmp_path / "x"), 2, told
    )


def test_stacked_names_serve_in_python(tmp_path: Path) -> None:
    folders = write_frames(tmp_path, 4)
    detector = Detector.fit(stacked(*folders), Config(sizes=96, K=100, augment="none"))  # type: ignore[arg-type]
    assert detector.score(stacked(*folders)[0]).path == f"{tmp_path}/{{cam0,cam1}}/000.png"
