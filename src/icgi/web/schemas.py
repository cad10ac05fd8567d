"""What clients send and get, for checking and for the OpenAPI description."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=1000)]
Weight = Annotated[float, Field(ge=0, le=1e300, allow_inf_nan=False)]
ModelId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="From `GET /models`.")]
JobId = Annotated[str, Field(pattern=r"^[0-9a-f]{24}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class MarginalsQuestion(_Strict):
    """What is known, and how the answer is to be found."""

    model: ModelId
    evidence: dict[Name, Name] = Field(
        {}, max_length=100_000, description="State of each observed variable, by name or number."
    )
    likelihood: dict[Name, Annotated[list[Weight], Field(min_length=1, max_length=100_000)]] = (
        Field({}, max_length=1000, description="Soft evidence: a weight for each state.")
    )
    exclude: dict[Name, Annotated[list[Name], Field(max_length=100_000)]] = Field(
        {}, max_length=1000, description="States that are impossible."
    )
    engine: Annotated[str, Field(max_length=200, description="As `icgi engines` lists them.")] = (
        "auto"
    )
    seconds: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description="Time for the answer; the service has a limit of its own."
    )
    iterations: Annotated[int, Field(ge=1, le=2**40)] | None = None
    memory_bytes: Annotated[int, Field(ge=1, le=2**62)] | None = None
    level: Annotated[float, Field(gt=0, lt=1)] = Field(0.9, description="Of the bands.")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


class JointQuestion(MarginalsQuestion):
    """The joint table of a few variables."""

    variables: list[Name] = Field(min_length=2, max_length=6)


class MpeQuestion(MarginalsQuestion):
    """The most probable configuration."""


class Wrong(BaseModel):
    """Why a request was refused."""

    detail: str | list[dict[str, Any]]


class Trouble(BaseModel):
    """Why there is no answer."""

    type: str
    message: str


class JobState(BaseModel):
    """A question, how far it is, and its answer."""

    id: str
    kind: str
    model: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    created: float = Field(description="Seconds since 1970.")
    started: float | None
    finished: float | None
    progress: dict[str, Any] | None = Field(description="Best answer so far.")
    result: dict[str, Any] | None
    error: Trouble | None


class ModelSize(BaseModel):
    """One model that questions can be asked of."""

    id: str
    name: str
    served: bool = Field(description="Given when the service was started; it cannot be deleted.")
    variables: int
    factors: int


class Variable(BaseModel):
    """A variable and its states."""

    name: str
    states: list[str]


class ModelFacts(BaseModel):
    """Names and sizes of a model."""

    id: str
    name: str
    served: bool
    variables: list[Variable]
    factors: int
    entries: int
    max_states: int


class Health(BaseModel):
    """Whether the service works, and how busy it is."""

    version: str
    workers: int
    jobs: dict[str, int]


class EngineFacts(BaseModel):
    """One engine."""

    name: str
    words: str
