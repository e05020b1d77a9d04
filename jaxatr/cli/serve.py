"""Serves a run with an HTTP API and a page to drop chips on.

jaxatr serve --workdir=DIR [--port=8000] [--score=auto|cbc|vim|…] [--scores=knn,energy]
jaxatr serve --workdir=DIR --detector=DIR
jaxatr serve --workdir=DIR --label=suggest.csv|suspects.csv [--labels=FILE.csv]
jaxatr serve --workdir=DIR --host=0.0.0.0 --token_file=FILE [--certificate=FILE --key=FILE]

By default only this machine can connect. With another --host, requests need a
token: that of --token_file or of the environment variable JAXATR_TOKEN, or
else a random one that is printed. SIGTERM and Ctrl-C stop the server after it
has answered all requests.
"""

import dataclasses
import socket
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from jaxatr.cli import inputs
from jaxatr.serving import Options
from jaxatr.serving.options import Limits

_PACKAGES = (
    *("jinja2", "fastapi", "uvicorn", "httptools", "prometheus_client", "python_multipart"),
)


def define_flags() -> None:
    """Defines the command's flags."""
    of_run, limits = Options(), Limits()
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string(
        "detector", None, "Folder of the run that finds targets in scenes, for the run to decide."
    )
    flags.DEFINE_string("host", of_run.host, "Address to listen on; 0.0.0.0 for all interfaces.")
    flags.DEFINE_integer("port", of_run.port, "Port to listen on; 0: any free port.", 0, 65_535)
    flags.DEFINE_string("token_file", None, "A file with the token that requests need.")
    flags.DEFINE_multi_string(
        "allow_host", [], "A host name of the server for browsers; repeatable."
    )
    flags.DEFINE_string("certificate", "", "TLS certificate, a PEM file. Default: no TLS.")
    flags.DEFINE_string("key", "", "TLS key, a PEM file. Default: in the certificate's file.")
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_string("score", None, "The open-set score that decides; default: the run's.")
    flags.DEFINE_string(
        "gamma", None, "The threshold, as for jaxatr predict; default: the fitted one."
    )
    inputs.define_runtime()
    flags.DEFINE_list(
        "scores", [], "Additional scores to offer; CBC and fitted scores are always offered."
    )
    inputs.define_data()
    flags.DEFINE_integer(
        "examples",
        5000,
        "Largest number of training chips to search for nearest ones (recognisers); 0 for none.",
        0,
    )
    flags.DEFINE_string(
        "method",
        None,
        "Method of the heat maps; 'none' for no maps. Default: --surrogate's, or grad_cam.",
    )
    flags.DEFINE_string("surrogate", None, "Folder of the run whose surrogate explains.")
    flags.DEFINE_string(
        "marks", "", "File of the users' marks. Default: marks.jsonl in the run's folder."
    )
    flags.DEFINE_string(
        "label",
        "",
        "Show the images of this table of jaxatr suggest or jaxatr check --suspects at /label, to "
        "label them or to correct their labels.",
    )
    flags.DEFINE_string(
        "labels", "", "File of these labels (.csv). Default: TABLE-labels.csv beside the table."
    )
    flags.DEFINE_string(
        "record",
        "",
        "Append a row for each prediction to this file (.jsonl), which jaxatr monitor reads.",
    )
    flags.DEFINE_list(
        "batches", [str(size) for size in of_run.batches], "Batch sizes, compiled at the start."
    )
    flags.DEFINE_integer(
        "waiting", limits.waiting, "Largest number of chips waiting for a batch.", 1
    )
    flags.DEFINE_integer("max_pixels", limits.pixels, "Largest number of pixels of an image.", 1)
    flags.DEFINE_integer("max_body", limits.body, "Largest number of bytes of a request.", 1)
    flags.DEFINE_integer("max_images", limits.images, "Largest number of images in a request.", 1)
    flags.DEFINE_float(
        "drain", limits.drain_seconds, "Seconds for the requests in progress when it stops.", 0
    )


def main(arguments: Sequence[str]) -> None:
    """Serves until the process is stopped."""
    from jaxatr import training  # late, to keep --help fast
    from jaxatr.extras import require

    inputs.refuse(arguments)
    require(*_PACKAGES, extra="serve", what="jaxatr serve")
    from jaxatr.serving import served_run, server

    values = flags.FLAGS
    token, drawn = server.token_for(values.host, values.token_file)
    options = _options(token)
    wanted = served_run.Wanted(
        values.workdir,
        inputs.checkpoint(values.checkpoint),
        score=values.score,
        gamma=values.gamma,
        scores=tuple(values.scores),
        method="" if values.method == "none" else values.method,
        surrogate=values.surrogate,
        examples=values.examples,
        runtime=inputs.runtime(),
        detector=values.detector,
        **inputs.data_place(),
    )
    for folder in filter(None, (values.workdir, values.detector)):
        training.task_of(folder)  # raises an error for a folder that is not a run
    training.enable_compilation_cache()
    inputs.say(f"loading {values.workdir}")
    server.serve(wanted, options, tell_token=drawn)


def _options(token: str) -> Options:
    values = flags.FLAGS
    try:
        batches = tuple(sorted(int(size) for size in values.batches))
    except ValueError:
        raise ValueError(f"--batches: got {','.join(values.batches)}, wanted numbers") from None
    if values.labels and not values.label:
        raise ValueError("--labels needs --label=TABLE")
    if values.key and not values.certificate:
        raise ValueError("--key needs --certificate=FILE")
    for name, file in (("certificate", values.certificate), ("key", values.key)):
        if file and not Path(file).is_file():
            raise ValueError(f"--{name}: there is no file {file}")
    limits = dataclasses.replace(
        Limits(),
        pixels=values.max_pixels,
        body=values.max_body,
        images=min(values.max_images, values.waiting),
        waiting=values.waiting,
        drain_seconds=values.drain,
    )
    hosts = {*values.allow_host, values.host, socket.gethostname(), socket.getfqdn()}
    return Options(
        host=values.host,
        port=values.port,
        token=token,
        hosts=tuple(sorted(hosts)) if token else tuple(values.allow_host),
        batches=batches,
        marks=values.marks,
        label=values.label,
        labels=values.labels,
        record=values.record,
        certificate=values.certificate,
        key=values.key,
        limits=limits,
    )
