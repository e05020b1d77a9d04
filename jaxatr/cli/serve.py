"""Serves a run: an HTTP API, and a page to drop chips on.

jaxatr serve --workdir=DIR [--port=8000] [--score=auto|cbc|vim|…] [--scores=knn,energy]
jaxatr serve --workdir=DIR --host=0.0.0.0 --token_file=FILE [--certificate=FILE --key=FILE]

It listens on this machine alone unless --host says otherwise; then a request must bear a token:
that of --token_file, of the variable JAXATR_TOKEN, or one that is drawn and printed. SIGTERM and
Ctrl-C end it when everything that was asked is answered.
"""

import dataclasses
import socket
from collections.abc import Sequence

from absl import flags

from jaxatr import training
from jaxatr.cli import inputs
from jaxatr.data.extras import extra
from jaxatr.serving import Options
from jaxatr.serving.options import Limits

_PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")


def define_flags() -> None:
    """Defines the command's flags."""
    of_run, limits = Options(), Limits()
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string("host", of_run.host, "Address to listen on; 0.0.0.0 for every one.")
    flags.DEFINE_integer("port", of_run.port, "Port to listen on; 0 for any that is free.", 0)
    flags.DEFINE_string("token_file", None, "A file that holds the token of requests.")
    flags.DEFINE_multi_string(
        "allow_host", [], "A name by which browsers may call the server; several times."
    )
    flags.DEFINE_string("certificate", "", "Certificate of TLS, a PEM file. Default: no TLS.")
    flags.DEFINE_string("key", "", "Its key, a PEM file. Default: in the certificate's file.")
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_string("score", None, "Decide by this open-set score; default: the run's.")
    flags.DEFINE_string("gamma", None, "The threshold, as of jaxatr predict. Default: the fitted.")
    flags.DEFINE_list(
        "scores", [], "Offer these scores too. CBC and those fitted before come by themselves."
    )
    inputs.define_runtime()
    flags.DEFINE_string("source", None, "Where the training data is now.")
    flags.DEFINE_string("data_dir", None, "Where prepared data is now.")
    flags.DEFINE_integer(
        "examples", 5000, "Search so many training chips of a recogniser; 0 for none.", 0
    )
    flags.DEFINE_string(
        "method", None, "Of the heat maps; 'none' for none. Default: --surrogate's, or grad_cam."
    )
    flags.DEFINE_string("surrogate", None, "The folder of the run whose surrogate explains.")
    flags.DEFINE_string("marks", "", "File of the marks. Default: marks.jsonl in the run's folder.")
    flags.DEFINE_list(
        "batches", [str(size) for size in of_run.batches], "Sizes of batches, compiled at once."
    )
    flags.DEFINE_integer("waiting", limits.waiting, "Chips that may wait for a batch.", 1)
    flags.DEFINE_integer("max_pixels", limits.pixels, "Pixels of an image, at most.", 1)
    flags.DEFINE_integer("max_body", limits.body, "Bytes of a request, at most.", 1)
    flags.DEFINE_integer("max_images", limits.images, "Images of a request, at most.", 1)
    flags.DEFINE_float("drain", limits.drain_seconds, "Seconds to answer in when it is ended.", 0)


def main(arguments: Sequence[str]) -> None:
    """Serves until the process is told to end."""
    inputs.refuse(arguments)
    for package in _PACKAGES:
        extra(package, "serve", "jaxatr serve")
    from jaxatr.serving import engine, server

    values = flags.FLAGS
    token, drawn = server.token_for(values.host, values.token_file)
    options = _options(token)
    wanted = engine.Wanted(
        values.workdir,
        inputs.checkpoint(values.checkpoint),
        values.score,
        values.gamma,
        tuple(values.scores),
        values.source,
        values.data_dir,
        "" if values.method == "none" else values.method,
        values.surrogate,
        values.examples,
        values.runtime,
    )
    training.task_of(values.workdir)  # a folder that is no run is told before the port is taken
    training.enable_compilation_cache()
    server.serve(wanted, options, tell_token=drawn)


def _options(token: str) -> Options:
    values = flags.FLAGS
    try:
        batches = tuple(sorted(int(size) for size in values.batches))
    except ValueError:
        raise ValueError(f"--batches: got {','.join(values.batches)}, wanted numbers") from None
    if values.key and not values.certificate:
        raise ValueError("--key is of --certificate=FILE, which is not given")
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
        certificate=values.certificate,
        key=values.key,
        limits=limits,
    )
