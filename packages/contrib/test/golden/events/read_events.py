"""Writes read-events.json: event files that this package wrote, and what TensorBoard itself reads in them.

    npx tsx write-events.ts FOLDER
    pip install tensorboard && python read_events.py FOLDER > read-events.json

Of a run folder with metrics.jsonl beside its events, `python read_events.py FOLDER --run` compares every value instead.
"""

import json
import pathlib
import struct
import sys

import tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader


def read(folder):
    """Every scalar by its tag, steps that a resumed session computed again only once."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    scalars = {tag: [[event.step, event.value] for event in events.Scalars(tag)] for tag in tags["scalars"]}
    # Newer loaders turn scalars into tensors.
    for tag in tags["tensors"]:
        scalars[tag] = [[event.step, event.tensor_proto.float_val[0]] for event in events.Tensors(tag)]
    return scalars


def records(folder):
    """How many events there are, each with a checksum that was found right: a wrong one raises DataLossError."""
    return sum(len(list(EventFileLoader(str(path)).Load())) for path in sorted(folder.rglob("*tfevents*")))


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def compare(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    [folder] = {path.parent for path in run.rglob("*tfevents*")}
    found = read(folder)
    compared, wrong = 0, []
    for tag, values in found.items():
        expected = [[line["step"], line[tag]] for line in lines if isinstance(line.get(tag), (int, float))]
        compared += len(expected)
        if [step for step, _ in values] != [step for step, _ in expected] or any(
            value != single(want) for (_, value), (_, want) in zip(values, expected)
        ):
            wrong.append(tag)
    numbers = {key for line in lines for key, value in line.items() if isinstance(value, (int, float))}
    missing = sorted(numbers - set(found) - {"version", "step"})
    print(
        f"tensorboard {tensorboard.__version__}: {records(folder)} events in {len(list(folder.iterdir()))} files, "
        f"{len(found)} tags, {compared} values compared; wrong: {wrong}; without a curve: {missing}"
    )
    sys.exit(bool(wrong))


folder = pathlib.Path(sys.argv[1])
if "--run" in sys.argv:
    compare(folder)
print(
    json.dumps(
        {
            "made_with": f"tensorboard {tensorboard.__version__}",
            "files": [path.read_bytes().hex() for path in sorted(folder.iterdir())],
            "events": records(folder),
            "read": read(folder),
        },
        indent=2,
        ensure_ascii=False,
    )
)
