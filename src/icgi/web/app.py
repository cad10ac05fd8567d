"""The HTTP service: JSON routes that ask the same functions as the command line, and the viewer."""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, FastAPI, HTTPException, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse, StreamingResponse

from icgi import __version__
from icgi.web import schemas
from icgi.web.component import STATIC
from icgi.web.guard import Access, App, Guard
from icgi.web.jobs import FullError, Jobs
from icgi.web.limits import UPLOADS, Limits, predicted_bytes, too_large
from icgi.web.payload import ENGINE_WORDS
from icgi.web.store import FAILED, Job, Store

_LOG = logging.getLogger("uvicorn.error")
_FILES = {path.name: path for path in sorted(STATIC.glob("*.*"))}
_KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
_HEARTBEAT = 15.0  # seconds after which a silent event stream says that it is alive
_BYTES_PER_SECOND = (
    1e6  # of a model, when others are at work; decides whether it is a long question
)
_READING = 120.0  # seconds to wait for a model to be read
_WRONG = {"EvidenceError", "ModelFormatError", "UnsupportedModelError", "BudgetError", "IcgiError"}


@dataclass(frozen=True)
class Served:
    """A model given when the service was started."""

    name: str
    suffix: str
    content: bytes


@dataclass(eq=False)
class _Service:
    """What the routes share."""

    store: Store
    limits: Limits
    served: Sequence[Served]
    jobs: Jobs
    streams: int = 0

    async def ask(
        self, kind: str, model: str, question: dict[str, Any], wait: float, response: Response
    ) -> Job:
        """Queue a question and wait a little; 202 where it has not ended by then."""
        try:
            job = await self.jobs.ask(kind, model, question)
        except FullError as full:
            raise HTTPException(
                429, "too many questions are waiting; come back later",
                {"Retry-After": str(full.retry_after)},
            ) from full  # fmt: skip
        if not job.ended:
            job = await self.jobs.ended(job.id, wait) or job
        if job.error is not None and job.error["type"] in _WRONG:
            raise HTTPException(422, job.error["message"])
        if not job.ended:
            response.status_code = 202
            response.headers["Location"] = f"/jobs/{job.id}"
        return job

    async def read(self, ident: str, name: str, size: int, urgent: bool = False) -> Job:
        """Have a worker read a model of so many bytes, and keep its names and sizes."""
        question = {"name": name, "seconds": 1.0 + size / _BYTES_PER_SECOND}
        job = await self.jobs.ask("read", ident, question, urgent)
        found = await self.jobs.ended(job.id, _READING) or job
        if found.result is not None:
            self.store.describe_model(ident, found.result)
        return found


def create_app(
    served: Sequence[Served] = (),
    store: Path | str = "icgi-serve.sqlite",
    limits: Limits | None = None,
    access: Access | None = None,
) -> App:
    """ASGI application: the viewer at `/`, the service beside it, its description at `/docs`."""
    limits = limits or Limits()
    app = FastAPI(
        title="icgi",
        version=__version__,
        summary="Marginals of discrete graphical models, and which of the numbers to trust.",
        docs_url=None,
        redoc_url=None,
        lifespan=_life(served, Path(store), limits),
    )
    app.include_router(router)
    app.include_router(pages, include_in_schema=False)

    def largest(path: str) -> int:
        return limits.model_bytes if path == "/models" else limits.body_bytes

    access = access or Access()
    return Guard(app, replace(access, body_seconds=limits.body_seconds), largest)


def _life(served: Sequence[Served], path: Path, limits: Limits) -> Any:
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        store = Store(path)
        service = _Service(store, limits, served, Jobs(store, limits))
        app.state.service = service
        await service.jobs.start()
        reading = asyncio.create_task(_read_served(service))
        try:
            yield
        finally:
            reading.cancel()
            await service.jobs.stop()
            await asyncio.gather(reading, return_exceptions=True)
            store.close()

    return life


async def _read_served(service: _Service) -> None:
    """Read the models of the command line, one after the other."""
    service.store.none_served()
    idents = [model_id(model.suffix, model.content) for model in service.served]
    for ident, model in zip(idents, service.served, strict=True):
        service.store.add_model(ident, model.name, model.suffix, model.content, served=True)
    for ident, model in zip(idents, service.served, strict=True):
        job = await service.read(ident, model.name, len(model.content), urgent=True)
        if job.error is not None:
            _LOG.error("%s cannot be served: %s", model.name, job.error["message"])


def model_id(suffix: str, content: bytes) -> str:
    """Sixteen hexadecimal digits that are the same for the same file."""
    return hashlib.sha256(suffix.encode() + b"\0" + content).hexdigest()[:16]


def _service(request: Request) -> _Service:
    service: _Service = request.app.state.service
    return service


def _refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    words = {
        404: "There is no such thing here.",
        409: "It cannot be done now.",
        413: "Too large for this service.",
        422: "The question is wrong; the message says what to repair.",
        429: "Too many questions are waiting; the header Retry-After says when to come back.",
        400: "The body cannot be read.",
    }
    return {code: {"model": schemas.Wrong, "description": words[code]} for code in codes}


router = APIRouter()
ModelPath = Annotated[schemas.ModelId, InPath()]
JobPath = Annotated[schemas.JobId, InPath()]
Wait = Annotated[
    float, Query(ge=0, le=60, description="Seconds to wait for the answer before 202 is sent.")
]
_ASKING: dict[str, Any] = {
    "response_model": schemas.JobState,
    "responses": {
        202: {"model": schemas.JobState, "description": "At work; ask `GET /jobs/{id}`."},
        **_refusals(400, 404, 413, 422, 429),
    },
}


@router.get("/health", response_model=schemas.Health)
async def health(request: Request) -> dict[str, Any]:
    """Whether the service works, and how busy it is."""
    service = _service(request)
    return {
        "version": __version__,
        "workers": service.jobs.ready,
        "jobs": service.store.counts(),
    }


@router.get("/engines", response_model=list[schemas.EngineFacts])
async def engines() -> list[dict[str, str]]:
    """Engines that questions may name; `icgi engines NAME` explains their options."""
    return [{"name": name, "words": words} for name, words in ENGINE_WORDS.items()]


@router.get("/models", response_model=list[schemas.ModelSize])
async def models(request: Request) -> list[dict[str, Any]]:
    """Models that questions can be asked of."""
    return _service(request).store.models()


@router.post(
    "/models",
    status_code=201,
    response_model=schemas.ModelFacts,
    responses=_refusals(400, 409, 413, 422, 429),
)
async def add_model(
    request: Request,
    content: Annotated[bytes, Body(media_type="application/octet-stream", min_length=1)],
    name: Annotated[str, Query(min_length=1, max_length=200)] = "model",
    form: Annotated[Literal[UPLOADS], Query(alias="format")] = "uai",  # type: ignore[valid-type]
) -> dict[str, Any]:
    """Leave a model here: the contents of a file in one of these formats are the body."""
    service = _service(request)
    needed = predicted_bytes(content, form)
    if needed > service.limits.memory_bytes:
        raise HTTPException(413, too_large(needed, service.limits.memory_bytes, "the model needs"))
    ident = model_id(f".{form}", content)
    known = service.store.model(ident)
    if known is None:
        if service.store.count_models() >= service.limits.models:
            raise HTTPException(409, "no room for more models; delete one first")
        service.store.prune(service.limits.kept, service.limits.store_bytes)
        if service.store.bytes_used() + len(content) > service.limits.store_bytes:
            raise HTTPException(409, "the store is full; delete a model first")
        service.store.add_model(ident, name, f".{form}", content, served=False)
    if known is None or known["facts"] is None:
        try:
            job = await service.read(ident, name, len(content))
        except FullError as full:
            service.store.remove_model(ident)
            raise HTTPException(
                429, "too many questions are waiting", {"Retry-After": str(full.retry_after)}
            ) from full
        if job.result is None:
            service.jobs.cancel_all(ident)
            service.store.remove_model(ident)
            raise HTTPException(
                422, (job.error or {"message": "the model was not read"})["message"]
            )
    return _facts(service, ident)


@router.get("/models/{ident}", response_model=schemas.ModelFacts, responses=_refusals(404, 422))
async def model(request: Request, ident: ModelPath) -> dict[str, Any]:
    """Names of the variables and states of a model."""
    return _facts(_service(request), ident)


@router.delete("/models/{ident}", status_code=204, responses=_refusals(404, 409, 422))
async def remove_model(request: Request, ident: ModelPath) -> None:
    """Forget a model, and all answers about it."""
    service = _service(request)
    known = service.store.model(ident)
    if known is None:
        raise HTTPException(404, "there is no such model")
    if known["served"]:
        raise HTTPException(409, "this model was given when the service was started; it stays")
    service.jobs.cancel_all(ident)
    service.store.remove_model(ident)


@router.get(
    "/models/{ident}/graph", response_model=dict[str, Any], responses=_refusals(404, 422, 429)
)
async def graph(
    request: Request,
    ident: ModelPath,
    response: Response,
    around: Annotated[schemas.Name | None, Query()] = None,
) -> dict[str, Any]:
    """Where to draw the variables of a model, or those around one of them."""
    question = {"around": around, "seconds": 1.0}
    return await _now(_service(request), "graph", ident, question, response)


@router.post("/models/{ident}/elimination", response_model=dict[str, Any],
             responses=_refusals(400, 404, 413, 422, 429))  # fmt: skip
async def elimination(
    request: Request,
    ident: ModelPath,
    response: Response,
    asked: schemas.MarginalsQuestion,
    rank: Annotated[int, Query(ge=1, le=64)] = 4,
) -> dict[str, Any]:
    """Elimination of a small model, step by step: fill-in, frontier, bonds, what was discarded."""
    service = _service(request)
    if asked.model != ident:
        raise HTTPException(422, "the question names another model than the address")
    question = {**_question(service, asked), "rank": rank}
    return await _now(service, "elimination", ident, question, response)


@router.post("/marginals", **_ASKING)
async def marginals(
    request: Request, asked: schemas.MarginalsQuestion, response: Response, wait: Wait = 10.0
) -> Any:
    """Every marginal of a model, given what is known."""
    return await _ask(_service(request), "marginals", asked, wait, response)


@router.post("/joint", **_ASKING)
async def joint(
    request: Request, asked: schemas.JointQuestion, response: Response, wait: Wait = 10.0
) -> Any:
    """Joint table of a few variables: cells in the order of the states, the last one fastest."""
    return await _ask(_service(request), "joint", asked, wait, response)


@router.post("/mpe", **_ASKING)
async def mpe(
    request: Request, asked: schemas.MpeQuestion, response: Response, wait: Wait = 10.0
) -> Any:
    """Most probable configuration."""
    return await _ask(_service(request), "mpe", asked, wait, response)


@router.get("/jobs/{ident}", response_model=schemas.JobState, responses=_refusals(404, 422))
async def job(request: Request, ident: JobPath, wait: Wait = 0.0) -> Any:
    """One question, how far it is, and its answer."""
    found = await _service(request).jobs.ended(ident, wait)
    if found is None:
        raise HTTPException(404, "there is no such job")
    return found


@router.delete("/jobs/{ident}", status_code=202, response_model=schemas.JobState,
               responses=_refusals(404, 422))  # fmt: skip
async def cancel(request: Request, ident: JobPath) -> Any:
    """End a question; it is over within seconds, and keeps the best answer so far."""
    service = _service(request)
    if service.store.job(ident) is None:
        raise HTTPException(404, "there is no such job")
    service.jobs.cancel(ident)
    return service.store.job(ident)


@router.get(
    "/jobs/{ident}/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **_refusals(404, 422, 429),
    },
)
async def events(request: Request, ident: JobPath) -> StreamingResponse:
    """Server-sent events: the job, each time something happens to it, until it has ended."""
    service = _service(request)
    if service.store.job(ident) is None:
        raise HTTPException(404, "there is no such job")
    if service.streams >= service.limits.streams:
        raise HTTPException(429, "too many event streams are open", {"Retry-After": "5"})
    return StreamingResponse(_stream(service, ident), media_type="text/event-stream")


async def _stream(service: _Service, ident: str) -> AsyncIterator[str]:
    service.streams += 1
    try:
        changes = service.jobs.changes(ident)
        pending: asyncio.Task[Job] | None = None
        try:
            while True:
                pending = pending or asyncio.ensure_future(anext(changes))
                done, _ = await asyncio.wait({pending}, timeout=_HEARTBEAT)
                if not done:
                    yield ": still at work\n\n"
                    continue
                try:
                    job = pending.result()
                except StopAsyncIteration:
                    return
                pending = None
                yield f"event: job\ndata: {json.dumps(_plain(job))}\n\n"
        finally:
            if pending is not None:
                pending.cancel()
                await asyncio.gather(pending, return_exceptions=True)
            await changes.aclose()
    finally:
        service.streams -= 1


def _plain(job: Job) -> dict[str, Any]:
    return schemas.JobState.model_validate(job, from_attributes=True).model_dump()


def _facts(service: _Service, ident: str) -> dict[str, Any]:
    known = service.store.model(ident)
    if known is None or known["facts"] is None:
        raise HTTPException(404, "there is no such model; GET /models lists them")
    return {**known["facts"], "id": ident, "served": known["served"]}


async def _ask(
    service: _Service, kind: str, asked: schemas.MarginalsQuestion, wait: float, response: Response
) -> Job:
    facts = _facts(service, asked.model)
    question = _question(service, asked)
    limit = service.limits.memory_bytes
    most = max(len(facts["variables"]), 1) * facts["max_states"]
    needed = 2 * 8 * most + 8 * facts["entries"] + question["memory_bytes"]
    if needed > limit:
        raise HTTPException(413, too_large(needed, limit, "the question may need"))
    if isinstance(asked, schemas.JointQuestion):
        question["variables"] = asked.variables
    return await service.ask(kind, asked.model, question, wait, response)


def _question(service: _Service, asked: schemas.MarginalsQuestion) -> dict[str, Any]:
    """Question with the limits of the service where it names none."""
    limits = service.limits
    if asked.seconds is not None and asked.seconds > limits.seconds:
        raise HTTPException(
            413, f"{asked.seconds:g} s are asked for, this service gives {limits.seconds:g} s"
        )
    question = asked.model_dump(exclude={"model", "variables"})
    question["seconds"] = asked.seconds or limits.usual_seconds
    question["memory_bytes"] = asked.memory_bytes or limits.memory_bytes // 2
    return question


async def _now(
    service: _Service, kind: str, ident: str, question: dict[str, Any], response: Response
) -> dict[str, Any]:
    """Result of a quick question, waited for."""
    _facts(service, ident)
    job = await service.ask(kind, ident, question, 60.0, response)
    response.status_code = 200
    if job.result is None:
        service.jobs.cancel(job.id)
        why = job.error["message"] if job.state == FAILED and job.error else "it took too long"
        raise HTTPException(422, why)
    return job.result


pages = APIRouter()


@pages.get("/")
async def viewer() -> FileResponse:
    """The viewer."""
    return FileResponse(STATIC / "index.html")


@pages.get("/docs")
async def docs() -> FileResponse:
    """The description of the routes, drawn from /openapi.json."""
    return FileResponse(STATIC / "docs.html")


@pages.get("/static/{name}")
async def static(name: str) -> FileResponse:
    """One of the files of the viewer, by its exact name."""
    if name not in _FILES:
        raise HTTPException(404, "there is no such file")
    return FileResponse(_FILES[name], media_type=_KINDS[_FILES[name].suffix])
