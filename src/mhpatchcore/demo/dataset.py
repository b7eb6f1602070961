"""The demo's data set: pictures of vials (`scene.py`) in the folders of MVTec AD."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from mhpatchcore.demo.scene import DEFECTS, vial_image
from mhpatchcore.errors import UserError

GENERATOR = 1  # raised when the pictures change, so that an older set is not taken for the same


def _image_seed(seed: int, split: str, kind: str, index: int) -> int:
    """A seed of its own for each image, so that a larger set begins with the smaller one."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{split}/{kind}/{index}".encode()).digest()[:8])


def _write_images(root: Path, split: str, kind: str, count: int, seed: int, pixels: int) -> None:
    images, masks = root / split / kind, root / "ground_truth" / kind
    defect = None if kind == "good" else kind
    for folder in (images, masks) if defect else (images,):
        folder.mkdir(parents=True)
    for index in range(count):
        image, mask = vial_image(_image_seed(seed, split, kind, index), defect, pixels)
        Image.fromarray(image).save(images / f"{index:03d}.png", compress_level=1)
        if defect:
            gray = Image.fromarray(mask.astype(np.uint8) * 255)
            gray.save(masks / f"{index:03d}_mask.png", compress_level=1)


def write_demo_dataset(
    root: str | Path, train: int = 120, good: int = 30, per_defect: int = 12, seed: int = 0, pixels: int = 256
) -> Path:
    """Write a set of vials in the folders of MVTec AD and return its root; the same set is kept if there.

    `train/good` has `train` images, `test/good` has `good`, `test/<defect>` and `ground_truth/<defect>` have
    `per_defect` each. The same arguments give the same bytes.
    """
    root = Path(root)
    made_by = {"generator": GENERATOR, "train": train, "good": good, "per_defect": per_defect}
    record = json.dumps(made_by | {"seed": seed, "pixels": pixels}, indent=1) + "\n"
    try:
        if (root / "demo.json").is_file() and (root / "demo.json").read_bytes() == record.encode():
            return root
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise UserError(f"{root} already holds something else; delete it or choose another folder")
        place = root.resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as temporary:
            unfinished = Path(temporary) / place.name
            _write_images(unfinished, "train", "good", train, seed, pixels)
            for kind, count in {"good": good, **dict.fromkeys(DEFECTS, per_defect)}.items():
                _write_images(unfinished, "test", kind, count, seed, pixels)
            (unfinished / "demo.json").write_text(record, encoding="utf-8")
            unfinished.replace(place)
    except OSError as error:
        raise UserError(f"cannot write {root}: {error.strerror}; choose another folder") from error
    return root
