"""`icgi serve`: the viewer in a browser and the HTTP service, on loopback by default."""

import contextlib
import ipaddress
import os
import re
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output
from icgi.errors import IcgiError

if TYPE_CHECKING:
    from icgi.web.app import Served

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")


def run(
    models: Annotated[
        list[Path] | None,
        typer.Argument(metavar="MODEL", readable=False, help="Models to show.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen at.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0 for any free one.")
    ] = 8080,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TEXT",
            envvar="ICGI_TOKEN",
            help="What clients have to know; made up and printed where it is needed and not given.",
            show_default="none on this machine",
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="HOST", help="A name clients use for this machine; repeat for more."
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="FILE",
            readable=False,
            help="Where models and answers are kept over a restart.",
            show_default="serve.sqlite in ~/.local/state/icgi",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, max=64, help="Processes that compute.")
    ] = 2,
    queue: Annotated[
        int, typer.Option("--queue", metavar="N", min=1, help="Questions that may wait.")
    ] = 64,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="Most time a question may ask for.")
    ] = 60.0,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory of one process: 500M, 4G.")
    ] = "2G",
    quiet: options.Quiet = False,
) -> None:
    """Show models in the browser, and answer questions over HTTP.

    The address is printed on stderr; its /docs lists the routes. Only this machine can reach it
    unless --host names another address, and then only with a token. Ctrl-C ends it; questions at
    work are taken up again by the next `icgi serve` with the same --store.
    """
    from icgi.extras import require_extra

    uvicorn = require_extra("uvicorn", "web", "icgi serve")
    require_extra("fastapi", "web", "icgi serve")
    from icgi.web.app import create_app
    from icgi.web.guard import LOOPBACK, Access
    from icgi.web.limits import Limits

    seconds = options.positive_seconds(seconds)
    usual = Limits()
    limits = Limits(
        workers=workers, queue=queue, seconds=seconds,
        usual_seconds=min(seconds, usual.usual_seconds), memory_bytes=options.bytes_of(memory),
    )  # fmt: skip
    token = _token(token, host)
    served = [_served(path) for path in models or ()]
    listening = _listen(host, port)
    address = _address(*listening.getsockname()[:2])
    access = Access((*LOOPBACK, host.lower(), *map(str.lower, names or ())), token)
    app = create_app(served, store or _usual_store(), limits, access)
    output.note(f"http://{address}/" + (f"?token={token}" if token else ""), quiet)
    if not _is_loopback(host) and not names:
        output.note("other machines reach it by the names given with --name only", quiet)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, lifespan="on",
        limit_concurrency=1000, timeout_keep_alive=15, timeout_graceful_shutdown=5,
    )  # fmt: skip
    server = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):  # the way to end it
        server.run(sockets=[listening])
    if not server.started:
        raise IcgiError("the service could not start; the reason is above")


def _served(path: Path) -> "Served":
    """Read a model's file, refusing here what no worker could read."""
    from icgi.api import load
    from icgi.web.app import Served

    load(path)
    suffixes = [s.lower() for s in path.suffixes[-2:]]
    suffix = "".join(suffixes) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])
    return Served(path.name.partition(".")[0] or path.name, suffix, path.read_bytes())


def _token(given: str | None, host: str) -> str | None:
    if given is not None and not _TOKEN.fullmatch(given):
        raise typer.BadParameter(
            "16 to 200 letters, digits, - or _ are needed", param_hint="--token"
        )
    return given or (None if _is_loopback(host) else secrets.token_urlsafe(24))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise IcgiError(
            f"cannot listen at {host}, port {port}: {error.strerror or error}; give another --port "
            "or --host"
        ) from error


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _usual_store() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "icgi" / "serve.sqlite"
