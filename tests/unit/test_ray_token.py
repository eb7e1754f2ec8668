"""The token for Ray clusters is made so that nobody else can read it, and said to be readable where others can."""

import os
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import token


@pytest.fixture
def home(monkeypatch):
    """One that others can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setenv("HOME", folder)
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
        monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
        yield Path(folder)


@pytest.fixture
def loader(monkeypatch):
    """Ray's, which keeps what it has read once."""

    class Loader:
        def has_token(self, ignore_auth_mode):
            return token.token_file().exists()

    monkeypatch.setattr(token, "AuthenticationTokenLoader", type("T", (), {"instance": staticmethod(Loader)}))


def test_a_token_is_made_for_its_user_alone(home, loader, caplog):
    token.show_token(make=False)
    assert not token.token_file().exists()
    token.show_token(make=True)
    assert token.token_file() == home / ".ray" / "auth_token"
    assert stat.S_IMODE(token.token_file().stat().st_mode) == 0o600
    text = token.token_file().read_text()
    assert len(text) >= 32
    token.show_token(make=True)
    assert token.token_file().read_text() == text
    assert caplog.text == ""


def test_a_token_that_was_never_written_is_made_anew(home, monkeypatch):
    empty = type("T", (), {"instance": staticmethod(lambda: SimpleNamespace(has_token=lambda ignore_auth_mode: False))})
    monkeypatch.setattr(token, "AuthenticationTokenLoader", empty)  # Ray's sees that there is none
    (home / ".ray").mkdir()
    token.token_file().touch()  # and the disk was full, or the process killed
    token.show_token(make=True)
    assert len(token.token_file().read_text()) >= 32
    assert stat.S_IMODE(token.token_file().stat().st_mode) == 0o600


def test_a_token_is_there_whole_or_not_at_all(home, loader, monkeypatch):
    monkeypatch.setattr(token, "generate_new_authentication_token", lambda: pytest.fail("the disk is full"))
    with pytest.raises(pytest.fail.Exception):
        token.show_token(make=True)
    assert list((home / ".ray").iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "file", "warns"), [(0o755, 0o644, 1), (0o755, 0o640, 1), (0o700, 0o644, 0), (0o755, 0o600, 0)]
)
def test_a_token_that_others_can_read_is_warned_of(home, loader, caplog, folder, file, warns):
    path = home / ".ray" / "auth_token"
    path.parent.mkdir()
    path.write_text("0" * 32)
    path.chmod(file)
    path.parent.chmod(folder)
    token.show_token(make=False)
    assert [record.getMessage() for record in caplog.records] == warns * [
        f"other users can read {path}, and run code as you in your Ray clusters with it: chmod 600 {path}"
    ]


def test_a_token_from_the_environment_has_no_file(home, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/elsewhere")
    assert token.token_file() == Path("/elsewhere")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 32)
    assert token.token_file() is None
