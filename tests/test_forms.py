"""Fields of recorded JSON files of a wrong type are named, whichever file they are of."""

import json

import pytest

from jaxatr import training
from jaxatr.recognition import enrolment_file, store
from jaxatr.reporting import recorded_repeats


def choice(folder):
    return store.load_choice(folder, 3)


@pytest.mark.parametrize(
    ("read", "file", "content", "message"),
    [
        (training.read_repeats, "repeats.json", {"finished": []}, r"finished: got \[\], wanted an"),
        (
            training.read_repeats,
            "repeats.json",
            {"further": "1"},
            'further: got "1", wanted an int',
        ),
        (training.read_repeats, "repeats.json", {"repeats": 3}, "repeats: got 3, wanted a string"),
        (training.read_repeats, "repeats.json", {"config": 1.5}, "config: got 1.5, wanted an obj"),
        (
            recorded_repeats.read,
            "summary.json",
            {"figures": {"AUROC": {"mean": {}}}},
            "figures.AUROC.mean: got {}, wanted a finite number or null",
        ),
        (
            enrolment_file.read,
            "enrolled.json",
            {"score": "nearest", "enrolments": [{"sha256": "abc"}]},
            r'enrolments\[0\].sha256: got "abc", wanted a list of strings',
        ),
        (choice, "fitted/3/choice.json", {"decides": 1}, "decides: got 1, wanted a string or null"),
    ],
)
def test_a_field_of_a_wrong_type_is_named(read, file, content, message, tmp_path):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"{path}: {message}"):
        read(tmp_path)
