"""More images than a model file can list are refused before the work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_detector import small_detector

from mhpatchcore import UserError
from mhpatchcore.model.file import check_can_be_listed, to_bytes


def test_too_many_images_are_refused_in_one_line() -> None:
    names = [f"line 7/{i:09d}.png" for i in range(50_000)]
    check_can_be_listed(names, most=10_000_000)
    with pytest.raises(
        UserError, match=r"50,000 images are too many for one model.* about \d\d,\d{3} of them"
    ) as caught:
        check_can_be_listed(names, most=3_000_000)
    assert "\n" not in str(caught.value)


def test_what_names_and_hashes_take_is_not_underestimated() -> None:
    model, n = small_detector().model, 20_000
    names = tuple(f'Linie 7/gut "ü"/{i:09d}.png' for i in range(n))
    many = replace(model, images=names, hashes=("0123456789abcdef" * 4,) * n)
    header = int.from_bytes(to_bytes(many)[:8], "little")
    with pytest.raises(UserError):
        check_can_be_listed(names, most=header)
    check_can_be_listed(names, most=header + 2_000_000)
