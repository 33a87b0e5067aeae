"""Writes events.json: records as Python's tensorboard frames and encodes them.

    pip install tensorboard && python make_events.py > events.json
"""

import io
import json

import tensorboard
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.summary.writer.record_writer import RecordWriter


class Kept(io.BytesIO):
    def close(self):
        pass


def file_of(events):
    kept = Kept()
    writer = RecordWriter(kept)
    for event in events:
        writer.write(event.SerializeToString())
    return kept.getvalue().hex()


def scalars(time, step, values):
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    return Event(wall_time=time, step=step, summary=summary)


def hyperparameter(time, name, kind, value):
    """One for each event, since the order of a map's entries is not fixed."""
    data = HParamsPluginData()
    setattr(data.session_start_info.hparams[name], kind, value)
    summary_value = Summary.Value(tag="_hparams_/session_start_info")
    summary_value.metadata.plugin_data.plugin_name = "hparams"
    summary_value.metadata.plugin_data.content = data.SerializeToString()
    return Event(wall_time=time, step=0, summary=Summary(value=[summary_value]))


TIME = 1763780000.25
VERSION = Event(wall_time=TIME, step=0, file_version="brain.Event:2")
VALUES = {"reward/mean": 0.125, "loss": -3.5, "größe": 1e30, "zero": 0.0}
BEGUN = [VERSION, scalars(TIME, 1, VALUES), scalars(TIME, 300, {"loss": 0.1})]
RESUMED = [
    VERSION,
    Event(wall_time=TIME, step=5_000_000_000, session_log=SessionLog(status=SessionLog.START)),
    scalars(TIME, 5_000_000_000, {"loss": 0.1}),
]
print(
    json.dumps(
        {
            "made_with": f"tensorboard {tensorboard.__version__}",
            "time": TIME,
            "values": VALUES,
            "begun": file_of(BEGUN),
            "resumed": file_of(RESUMED),
            "hyperparameters": file_of(
                [
                    VERSION,
                    hyperparameter(TIME, "training.learningRate", "number_value", 1e-5),
                    hyperparameter(TIME, "models.tester", "string_value", "größe"),
                    hyperparameter(TIME, "training.keepGraphs", "bool_value", True),
                    hyperparameter(TIME, "training.betas", "string_value", "[0.9,0.99]"),
                ]
            ),
        },
        indent=2,
    )
)
