"""anomalib's PatchCore as it comes (coreset 10 %, 9 neighbours), ResNet-18, the whole image at 224 pixels.

Needs `pip install anomalib[cpu]`, and a torchvision that matches its torch.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from anomalib.data import Folder
from anomalib.data.utils import read_image
from anomalib.engine import Engine
from anomalib.models import Patchcore
from safetensors.torch import load_file

from benchmarks.peers import measuring

warnings.filterwarnings("ignore")


def fit(images: Sequence[Path], weights: str, model: str) -> Any:
    patchcore = Patchcore(
        backbone="resnet18",
        layers=["layer2", "layer3"],
        pre_trained=False,
        pre_processor=Patchcore.configure_pre_processor(image_size=(224, 224)),
        post_processor=False,
        evaluator=False,
        visualizer=False,
    )
    patchcore.model.feature_extractor.feature_extractor.load_state_dict(load_file(weights), strict=False)
    folder = Folder(
        name="part",
        normal_dir=images[0].parent,
        test_split_mode="none",
        val_split_mode="none",
        num_workers=0,
    )
    with tempfile.TemporaryDirectory() as scratch:
        engine = Engine(
            accelerator="cpu",
            logger=False,
            default_root_dir=scratch,
            enable_progress_bar=False,
            limit_val_batches=0,
        )
        engine.fit(patchcore, datamodule=folder)
    patchcore.eval()
    torch.save(patchcore, model)
    return patchcore


@torch.inference_mode()
def score(patchcore: Any, image: Path) -> float:
    pixels = read_image(str(image), as_tensor=True)
    return float(patchcore(pixels[None]).pred_score)


if __name__ == "__main__":
    measuring.main(fit, score, lambda model: torch.load(model, weights_only=False))
