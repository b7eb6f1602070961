"""Writes tests/backbone/golden/*.npz: what an independent implementation of the backbones computes.

Run by hand, in an environment with torch, numpy and safetensors (mhpatchcore is not imported):

    python tests/backbone/make_golden.py efficientnet-lite0-57934424.pth resnet18.tv_in1k.safetensors

The networks are written out in plain `torch.nn.functional` in float64, with their batch normalisations left
unfolded, TensorFlow's "same" padding spelled out, and PatchCore's descriptor in its original order: unfold,
align, pool, stack, pool. Of each output a seeded sample is kept, with its shape, mean and standard deviation.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from golden_cases import CASES, Case, kept, pixels, random_resnet
from safetensors.torch import load_file
from torch import Tensor

State = dict[str, Tensor]

# EfficientNet-B0's stages: kernel, stride, expansion, channels, repeats
LITE0 = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
RESNET_BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3), "wide_resnet50_2": (3, 4, 6, 3)}


def batch_norm(x: Tensor, state: State, name: str, eps: float) -> Tensor:
    mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    return F.batch_norm(x, mean, variance, state[f"{name}.weight"], state[f"{name}.bias"], eps=eps)


def same_padding(x: Tensor, kernel: int, stride: int) -> Tensor:
    """TensorFlow's: as many zeros as ⌈side/stride⌉ outputs need, the odd one at the bottom and right."""
    pads = []
    for side in (x.shape[3], x.shape[2]):
        total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads)


def lite0(x: Tensor, state: State) -> dict[str, Tensor]:
    def conv_bn(x: Tensor, conv: str, bn: str, kernel: int, stride: int = 1, groups: int = 1) -> Tensor:
        weight = state[f"{conv}.weight"]
        assert weight.shape[2:] == (kernel, kernel), conv
        x = F.conv2d(same_padding(x, kernel, stride), weight, stride=stride, groups=groups)
        return batch_norm(x, state, bn, eps=1e-3)

    x = F.relu6(conv_bn((x - 127) / 128, "_conv_stem", "_bn0", 3, stride=2))
    outputs: dict[str, Tensor] = {}
    for kernel, stage_stride, expansion, channels, repeats in LITE0:
        for repeat in range(repeats):
            name, stride = f"_blocks.{len(outputs)}", stage_stride if repeat == 0 else 1
            y = x
            if expansion > 1:
                y = F.relu6(conv_bn(y, f"{name}._expand_conv", f"{name}._bn0", 1))
            assert y.shape[1] == expansion * x.shape[1], name
            y = conv_bn(y, f"{name}._depthwise_conv", f"{name}._bn1", kernel, stride, groups=y.shape[1])
            y = conv_bn(F.relu6(y), f"{name}._project_conv", f"{name}._bn2", 1)
            assert y.shape[1] == channels, name
            x = x + y if repeat > 0 else y
            outputs[f"block{len(outputs)}"] = x
    x = F.relu6(conv_bn(x, "_conv_head", "_bn1", 1))
    outputs["logits"] = F.linear(x.mean(dim=(2, 3)), state["_fc.weight"], state["_fc.bias"])
    outputs["descriptors"] = concat_descriptors([outputs["block4"], outputs["block10"]])
    return outputs


def resnet(x: Tensor, state: State, network: str) -> dict[str, Tensor]:
    def conv_bn(x: Tensor, conv: str, bn: str, stride: int = 1, padding: int = 0) -> Tensor:
        x = F.conv2d(x, state[f"{conv}.weight"], stride=stride, padding=padding)
        return batch_norm(x, state, bn, eps=1e-5)

    def basic_block(x: Tensor, name: str, stride: int) -> Tensor:
        y = F.relu(conv_bn(x, f"{name}.conv1", f"{name}.bn1", stride, padding=1))
        return conv_bn(y, f"{name}.conv2", f"{name}.bn2", padding=1)

    def bottleneck(x: Tensor, name: str, stride: int) -> Tensor:
        y = F.relu(conv_bn(x, f"{name}.conv1", f"{name}.bn1"))
        y = F.relu(conv_bn(y, f"{name}.conv2", f"{name}.bn2", stride, padding=1))
        return conv_bn(y, f"{name}.conv3", f"{name}.bn3")

    mean = torch.tensor([0.485, 0.456, 0.406], dtype=x.dtype).reshape(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225], dtype=x.dtype).reshape(1, 3, 1, 1)
    x = F.relu(conv_bn((x / 255 - mean) / std, "conv1", "bn1", stride=2, padding=3))
    x = F.max_pool2d(x, 3, stride=2, padding=1)
    block = basic_block if network == "resnet18" else bottleneck
    outputs = {}
    for stage, blocks in enumerate(RESNET_BLOCKS[network], start=1):
        for index in range(blocks):
            name, stride = f"layer{stage}.{index}", 2 if stage > 1 and index == 0 else 1
            y = block(x, name, stride)
            if f"{name}.downsample.0.weight" in state:
                x = conv_bn(x, f"{name}.downsample.0", f"{name}.downsample.1", stride)
            x = F.relu(x + y)
        outputs[f"layer{stage}"] = x
    outputs["logits"] = F.linear(x.mean(dim=(2, 3)), state["fc.weight"], state["fc.bias"])
    outputs["descriptors"] = patchcore_descriptors([outputs["layer2"], outputs["layer3"]])
    return outputs


def concat_descriptors(maps: list[Tensor]) -> Tensor:
    """3×3 means, aligned to the first map, concatenated: (N, h, w, C1 + C2)."""
    size = maps[0].shape[2:]
    means = [F.avg_pool2d(layer, 3, stride=1, padding=1) for layer in maps]
    aligned = [F.interpolate(layer, size=size, mode="bilinear", align_corners=False) for layer in means]
    return torch.cat(aligned, dim=1).permute(0, 2, 3, 1)


def patchcore_descriptors(maps: list[Tensor], dim: int = 1024) -> Tensor:
    """PatchCore's locally aware descriptor as its authors compute it: (N, h, w, 1024)."""
    n, (height, width) = len(maps[0]), maps[0].shape[2:]
    pooled = []
    for layer in maps:
        channels, h, w = layer.shape[1:]
        # patchify: the 3×3 neighbourhood of every position, (N, h, w, C, 3, 3)
        patches = F.unfold(layer, kernel_size=3, stride=1, padding=1).reshape(n, channels, 3, 3, h, w)
        patches = patches.permute(0, 4, 5, 1, 2, 3)
        # align: every entry of the patches is an image of its own
        entries = patches.permute(0, 3, 4, 5, 1, 2).reshape(-1, 1, h, w)
        entries = F.interpolate(entries, size=(height, width), mode="bilinear", align_corners=False)
        patches = entries.reshape(n, channels, 3, 3, height, width).permute(0, 4, 5, 1, 2, 3)
        # preprocess: all entries of a patch in a row, pooled to `dim`
        rows = patches.reshape(n * height * width, 1, channels * 9)
        pooled.append(F.adaptive_avg_pool1d(rows, dim).squeeze(1))
    stacked = torch.stack(pooled, dim=1).reshape(n * height * width, 1, -1)
    return F.adaptive_avg_pool1d(stacked, dim).reshape(n, height, width, dim)


def outputs_of(case: Case, lite0_weights: Path, resnet18_weights: Path) -> dict[str, Tensor]:
    if case.network == "efficientnet_lite0":
        state = torch.load(lite0_weights, weights_only=True)
    elif case.seed is None:
        state = load_file(resnet18_weights)
    else:
        state = {
            name: torch.from_numpy(array) for name, array in random_resnet(case.network, case.seed).items()
        }
    state = {name: tensor.double() for name, tensor in state.items()}
    image = torch.from_numpy(pixels(case.height, case.width)).double().permute(2, 0, 1)[None]
    return lite0(image, state) if case.network == "efficientnet_lite0" else resnet(image, state, case.network)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("lite0", type=Path, help="EfficientNet-Lite0 weights (.pth)")
    parser.add_argument("resnet18", type=Path, help="genuine ResNet-18 weights (.safetensors)")
    arguments = parser.parse_args()
    for case in CASES:
        outputs = outputs_of(case, arguments.lite0, arguments.resnet18)
        arrays = {}
        for name in case.outputs:
            array = outputs[name].numpy()
            arrays[f"{name}.shape"] = np.array(array.shape)
            arrays[f"{name}.moments"] = np.array([array.mean(), array.std()])
            arrays[f"{name}.values"] = kept(array)
        case.file.parent.mkdir(exist_ok=True)
        np.savez_compressed(case.file, **arrays)
        print(case.file.name, {name: tuple(outputs[name].shape) for name in case.outputs})


if __name__ == "__main__":
    with torch.no_grad():
        main()
