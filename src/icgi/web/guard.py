"""Who may talk to the service, and how much they may say: checked before any route is reached."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "icgi_token"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask, and how long a body may take."""

    hosts: tuple[str, ...] = LOOPBACK  # names by which the service may be called
    token: str | None = None
    body_seconds: float = 30.0


class Guard:
    """The application behind checks of host, origin and token, with safe headers on every answer.

    `largest` says how many bytes the body of a request to a path may have.
    """

    def __init__(self, app: App, access: Access, largest: Callable[[str], int]) -> None:
        self._app, self._access, self._largest = app, access, largest

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        started = False

        async def safe(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
                if scope["path"].startswith("/static") or scope["path"] in ("/", "/docs"):
                    message["headers"].append((b"cache-control", b"no-cache"))
                else:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        refusal = self._refused(scope, headers)
        if refusal is not None:
            await _answer(safe, *refusal)
            return
        if self._access.token is not None and not self._known(headers):
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if scope["path"] == "/" and self._right(given):
                await _welcome(safe, given)
            else:
                await _answer(
                    safe, 401, "this service asks for a token: open the address it printed when it "
                    "started, or send the header Authorization: Bearer TOKEN",
                    ((b"www-authenticate", b"Bearer"),),
                )  # fmt: skip
            return
        until = asyncio.get_running_loop().time() + self._access.body_seconds
        body = _Body(receive, self._largest(scope["path"]), until)
        try:
            await self._app(scope, body.receive, safe)
        except _Refused as refused:
            if not started:
                await _answer(safe, refused.code, str(refused))

    def _refused(self, scope: Message, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if _name(host) not in self._access.hosts:
            return 421, "this service is not called by that name; names are given when it starts"
        origin = headers.get("origin")
        foreign = headers.get("sec-fetch-site") == "cross-site"
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and (
            foreign or (origin is not None and urlsplit(origin).netloc != host)
        ):
            return 403, "questions from pages of another origin are refused"
        length, most = headers.get("content-length", "0"), self._largest(scope["path"])
        if not length.isdigit() or int(length) > most:
            return 413, f"a request to this address may have at most {most} bytes"
        return None

    def _known(self, headers: dict[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._right(given.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and self._right(cookie.value)

    def _right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self._access.token or "").encode())


class _Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class _Body:
    """What arrives, up to a size and within a time."""

    original: Receive
    most: int
    until: float  # by the clock of the event loop
    seen: int = 0
    whole: bool = False

    async def receive(self) -> Message:
        if self.whole:
            return await self.original()  # waits for the client to leave
        try:
            async with asyncio.timeout_at(self.until):
                message = await self.original()
        except TimeoutError:
            raise _Refused(408, "the request did not arrive in time") from None
        if message["type"] == "http.request":
            self.seen += len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
            if self.seen > self.most:
                raise _Refused(413, f"a request to this address may have at most {self.most} bytes")
        return message


def _name(host: str) -> str:
    """Host of a `Host` header without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def _answer(
    send: Send, code: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    import json

    body = json.dumps({"detail": text}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": code, "headers": [*head, *headers]})
    await send({"type": "http.response.body", "body": body})


async def _welcome(send: Send, token: str) -> None:
    """Keep the token in a cookie and take it out of the address."""
    cookie = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
    headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
