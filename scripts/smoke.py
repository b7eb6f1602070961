"""Does an installation work? `smoke.py fit FILE` with the whole one, then `smoke.py score FILE` with either."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import mhpatchcore
from mhpatchcore import Detector

what, file = sys.argv[1:]
assert "site-packages" in Path(mhpatchcore.__file__).parts, "this is the source, not an installation"
random = np.random.default_rng(0)
Path("parts").mkdir(exist_ok=True)
for i in range(6):
    Image.fromarray(random.integers(90, 110, (96, 96, 3)).astype(np.uint8)).save(f"parts/{i}.png")
if what == "fit":
    Detector.fit("parts", sizes=64, K=50).save(file)
detector = Detector.load(file)
spoiled = np.asarray(Image.open("parts/0.png")).copy()
spoiled[30:60, 30:60] = random.integers(0, 256, (30, 30, 3))
good, bad = detector.score("parts/0.png"), detector.score(spoiled)
assert bad.score > good.score and bad.is_rejected and bad.regions, (good, bad)
unneeded = {"matplotlib", "scipy", "sklearn", "huggingface_hub"} & set(sys.modules) if what == "score" else set()
assert not unneeded, f"scoring imports {unneeded}"
print(f"{what}: {good} {bad}")
