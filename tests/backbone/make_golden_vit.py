"""Writes tests/backbone/golden/vit_*.npz and dinov2_*.npz: what timm's vision transformers compute.

Run by hand, in an environment with timm and scipy (mhpatchcore is not imported):

    python tests/backbone/make_golden_vit.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from golden_cases import Floats, kept, pixels
from plain_vit import CASES, DINOV2_SMALL, MEAN, STD, Case, random_vit


def model_of(case: Case) -> Any:
    import timm
    from timm.models.vision_transformer import VisionTransformer

    if case.transformer == DINOV2_SMALL:
        return timm.create_model("vit_small_patch14_dinov2", num_classes=0, dynamic_img_size=True)
    shape = case.transformer
    return VisionTransformer(
        img_size=shape.grid * shape.patch,
        patch_size=shape.patch,
        embed_dim=shape.width,
        depth=shape.depth,
        num_heads=shape.heads,
        init_values=1.0,
        num_classes=0,
        dynamic_img_size=True,
    )


def outputs_of(case: Case) -> dict[str, Floats]:
    import torch

    state = random_vit(case.transformer)
    model = model_of(case)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()}, strict=True)
    image = ((pixels(case.height, case.width) / 255 - MEAN) / STD).transpose(2, 0, 1)[None]
    with torch.no_grad():
        last, blocks = model.double().eval().forward_intermediates(torch.from_numpy(image))
    outputs = {f"block{i}": block.numpy()[0] for i, block in enumerate(blocks)}
    return outputs | {"norm": last.numpy()[0, 1:].T.reshape(outputs["block0"].shape)}


def main() -> None:
    for case in CASES:
        outputs = outputs_of(case)
        arrays: dict[str, Floats] = {}
        for name in case.outputs:
            arrays[f"{name}.shape"] = np.array(outputs[name].shape)
            arrays[f"{name}.values"] = kept(outputs[name])
        np.savez_compressed(case.file, **arrays)
        print(case.file.name, {name: outputs[name].shape for name in case.outputs})


if __name__ == "__main__":
    main()
