"""How much a service takes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.parallel import available_cores


@dataclass(frozen=True)
class Limits:
    """Of each request: bytes, of which less may be JSON, pixels and number of its images, seconds until its answer.

    `workers` images are scored at a time, each on one core, and `queue` further requests may wait; bodies that are
    still coming have at most `receiving_bytes` together. The last `kept_parts` parts stay in memory, as far as their
    images fit into `kept_bytes`.
    """

    max_bytes: int = 64_000_000
    max_json: int = 1_000_000
    max_pixels: int = 100_000_000
    max_images: int = 64
    workers: int = field(default_factory=available_cores)
    queue: int = 32
    timeout: float = 30.0
    receiving_bytes: int = 256_000_000
    kept_parts: int = 500
    kept_bytes: int = 200_000_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise UserError(f"{name.replace('_', '-')} must be more than 0, not {value}")
