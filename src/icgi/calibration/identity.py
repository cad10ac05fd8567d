"""Identity of an engine: its settings without those that no approximation depends on.

Trained networks have the digest of their weights beside it, so that a calibration ends with them.
"""

import hashlib
import re
from functools import lru_cache
from importlib.resources import files

from icgi.engines import ENGINES

# Threads decide how fast an answer comes; the others when it is exact, or for how long one waits.
NEUTRAL = ("threads", "exact", "exact_entries", "seconds", "patience")
_SETTING = re.compile(rf"\b(({'|'.join(NEUTRAL)})=[^,()]*|\w+=None)(, )?")
# Settings under which an engine approximates what it could answer exactly: exact answers need no
# calibration.
WITHOUT_EXACT = {"auto": "auto:exact=false", "ttve": "ttve:exact_entries=0"}
# Beginnings of the names of the files behind a network; of others all files count.
_WEIGHTS = {
    "fast": ("icgi-fast", "icgi-general"), "paper": ("paper-seed",), "icgi": ("paper-seed",),
    "direct-gnn": ("direct-gnn-",),
}  # fmt: skip


def identity(engine: str) -> str:
    """Text that is equal for equal approximations, from the `repr` of an engine.

    Settings that were left open are left out, so that a new one does not end older calibrations.
    """
    return _SETTING.sub("", engine).replace(", )", ")")


def approximating(text: str) -> str:
    """Engine as typed, with exact inference switched off where it has that."""
    name, colon, rest = text.partition(":")
    if name not in WITHOUT_EXACT:
        return text
    return WITHOUT_EXACT[name] + ("," + rest if colon else "")


@lru_cache
def weights_digest(engine: str) -> str:
    """SHA-256 of the weights behind an engine, empty for one that is not trained."""
    name = engine.partition("(")[0]
    home = next((where for where in ENGINES.values() if where.endswith(f":{name}")), "")
    if not home.startswith("icgi.neural"):
        return ""
    variant = re.search(r"variant='([\w-]+)'", engine)
    wanted = _WEIGHTS.get(variant[1] if variant else "", ("",))
    digest = hashlib.sha256()
    folder = files("icgi.neural") / "weights"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.startswith(wanted):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
