"""The history: everything that was done to a model, with times that can be given."""

from __future__ import annotations

import pytest
from safetensors.numpy import load
from small_detector import small_detector, vials

from mhpatchcore import UserError
from mhpatchcore.model.file import to_bytes
from mhpatchcore.model.history import event, in_order


def test_the_history_tells_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    grown = small_detector().updated(vials(20, 3)).calibrated(0.2).calibrated(images=vials(30, 2), add=True)
    assert [(one.what, one.images, one.total) for one in grown.history] == [
        ("fit", 8, 8),
        ("update", 3, 11),
        ("calibrate", 0, 11),
        ("calibrate", 2, 11),
    ]
    assert [one.false_alarm for one in grown.history] == [0.03, 0.03, 0.2, 0.2]
    assert {one.when for one in grown.history[1:]} == {"2027-01-15T08:00:00Z"}


@pytest.mark.parametrize("epoch", ["yesterday", "1e400", "9" * 30])
def test_a_wrong_epoch_is_named(monkeypatch: pytest.MonkeyPatch, epoch: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(UserError, match=f"SOURCE_DATE_EPOCH.*{epoch}"):
        event("fit", "parts", 1, 1, 0.01)


def test_a_given_time_makes_equal_files(monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for epoch in ("1", "1", "2"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        files.append(to_bytes(small_detector().updated(vials(20, 2)).model))
    a, b, c = files
    assert a == b != c
    ours, other = load(a), load(c)
    assert all(ours[name].tobytes() == other[name].tobytes() for name in ours)


def test_histories_are_put_together_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    events = {}
    for epoch in (1, 2, 3, 4):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(epoch))
        events[epoch] = event("fit", f"at {epoch}", 1, 1, 0.01)
    merged = in_order([(events[2], events[4]), (events[1], events[3])])
    assert [one.source for one in merged] == ["at 1", "at 2", "at 3", "at 4"]
