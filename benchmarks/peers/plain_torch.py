"""PatchCore in PyTorch as the original repository does it, for machines where anomalib does not run.

Unfold 3 × 3, pool to 1024, aggregate to 1024, greedy coreset of 10 % in 128 random directions, nearest rows by
`torch.cdist`. ResNet-18 written out, because torchvision may not be there. Needs torch, pillow and safetensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (so called everywhere)
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from benchmarks.peers import measuring

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
Tensor = torch.Tensor


class Block(nn.Module):
    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        shortcut = (nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.downsample = nn.Sequential(*shortcut) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.downsample(x))


class ResNet18(nn.Module):
    """As far as layer3."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))

    def forward(self, x: Tensor) -> list[Tensor]:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        layer2 = self.layer2(self.layer1(x))
        return [layer2, self.layer3(layer2)]


def descriptors(network: nn.Module, images: Sequence[Path]) -> Tensor:
    """(patches, 1024)."""
    pixels = [
        np.asarray(Image.open(path).convert("RGB").resize((224, 224), Image.BILINEAR)) for path in images
    ]
    x = (torch.from_numpy(np.stack(pixels)).float() / 255 - MEAN) / STD
    layers = []
    for layer in network(x.permute(0, 3, 1, 2)):
        n, channels, height, width = layer.shape
        windows = F.unfold(layer, 3, padding=1).reshape(n, channels * 9, height, width)
        windows = F.interpolate(windows, size=(28, 28), mode="bilinear", align_corners=False)
        flat = windows.permute(0, 2, 3, 1).reshape(-1, 1, channels * 9)
        layers.append(F.adaptive_avg_pool1d(flat, 1024).squeeze(1))
    return F.adaptive_avg_pool1d(torch.stack(layers, dim=1).flatten(1)[:, None], 1024).squeeze(1)


def greedy_coreset(rows: Tensor, share: float = 0.1) -> Tensor:
    """Rows farthest from those chosen before, one at a time, in 128 random directions."""
    projected = rows @ (torch.randn(rows.shape[1], 128) / 128**0.5)
    chosen = [0]
    nearest = (projected - projected[0]).norm(dim=1)
    for _ in range(int(len(rows) * share) - 1):
        chosen.append(int(nearest.argmax()))
        torch.minimum(nearest, (projected - projected[chosen[-1]]).norm(dim=1), out=nearest)
    return rows[chosen]


@torch.inference_mode()
def fit(images: Sequence[Path], weights: str, model: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    network = ResNet18()
    network.load_state_dict(load_file(weights), strict=False)
    network.eval()
    rows = torch.cat([descriptors(network, images[i : i + 8]) for i in range(0, len(images), 8)])
    fitted = network, greedy_coreset(rows)
    torch.save(fitted, model)
    return fitted


@torch.inference_mode()
def score(fitted: tuple[nn.Module, Tensor], image: Path) -> float:
    network, bank = fitted
    nearest = torch.cdist(descriptors(network, [image]), bank).min(dim=1).values
    F.interpolate(nearest.reshape(1, 1, 28, 28), size=(224, 224), mode="bilinear")  # the map
    return float(nearest.max())


def load(model: str) -> Any:
    return torch.load(model, weights_only=False)


if __name__ == "__main__":
    measuring.main(fit, score, load)
