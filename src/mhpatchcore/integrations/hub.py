"""Detectors on the Hugging Face hub, each with a card that says what it learnt and what its threshold holds.

from mhpatchcore.integrations.hub import from_hub, push_to_hub

push_to_hub(detector, "me/bottle")
detector = from_hub("me/bottle")
"""

from __future__ import annotations

from huggingface_hub import CommitOperationAdd, HfApi

from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.model.file import to_bytes
from mhpatchcore.report.page import provenance, threshold_promise

FILE = "model.mhpc"


def push_to_hub(
    detector: Detector,
    repository: str,
    *,
    private: bool = True,
    license: str = "other",
    token: str | None = None,
) -> str:
    """Upload a detector with its card, in one commit, to "name/repository"; returns the commit's URL.

    A model file holds the names of its training images, and descriptors of them: a new repository is private unless
    you say otherwise. The licence goes by the hub's names. The token is that of `hf auth login`, or HF_TOKEN, if you
    give none.
    """
    operations = [
        CommitOperationAdd(FILE, to_bytes(detector.model)),
        CommitOperationAdd("README.md", card(detector, repository, license).encode()),
    ]
    message = f"Detector of {detector.model.n_learnt} images"
    try:
        hub = HfApi(token=token)
        hub.create_repo(repository, private=private, exist_ok=True)
        return str(hub.create_commit(repository, operations, commit_message=message).commit_url)
    except Exception as error:  # the hub library's errors have no common base over its versions
        raise UserError(f"cannot upload to {repository}: {in_one_line(error)}") from error


def from_hub(repository: str, *, revision: str | None = None, token: str | None = None) -> Detector:
    """Download a detector from "name/repository", or take it from the cache; a revision is a branch, tag or commit."""
    try:
        path = HfApi(token=token).hf_hub_download(repository, FILE, revision=revision)
    except Exception as error:
        raise UserError(f"cannot download {FILE} of {repository}: {in_one_line(error)}") from error
    return Detector.load(path)


def card(detector: Detector, repository: str, license: str = "other") -> str:
    """The card of a detector in Markdown: its promise, how to use it, and where it comes from."""
    facts = "\n".join(f"| {name} | {value} |" for name, value in provenance(detector))
    return f"""---
library_name: mhpatchcore
license: {license}
pipeline_tag: image-classification
tags: [anomaly-detection, visual-inspection, patchcore]
---
# {detector.model.product or repository}

Finds defects on images of parts like those it has learnt. {threshold_promise(detector.calibration)}

```python
from mhpatchcore.integrations.hub import from_hub

result = from_hub("{repository}").score("part.png")
```

| | |
|---|---|
{facts}
"""
