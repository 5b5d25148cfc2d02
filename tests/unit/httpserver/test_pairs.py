"""What is known of a pair; ours in a folder is renewed, another's is told in time."""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509

from cloudprovider.internal import certificates as internal
from cloudprovider.internal.certificates import LIFETIME, MADE_BY, issue
from controllers.httpserver import certificates
from controllers.httpserver.certificates import FilePair, FolderPair
from controllers.httpserver.pairs import Expiry, Pair, inspect
from controllers.httpserver.tls import ServerTLS
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.pki import Authority
from tests.support.there import there

DAY = 86400.0
OURS = issue("node-1", ["localhost"], groups=[MADE_BY])
THEIRS = issue("node-1", ["localhost"])
NEXT = issue("node-1", ["localhost"], groups=[MADE_BY])


def began(pair: Pair) -> float:
    return x509.load_pem_x509_certificate(pair.certificate).not_valid_before_utc.timestamp()


class TestInspect:
    def test_ours(self) -> None:
        found = inspect(Pair(OURS.certificate, OURS.key))
        assert (found.self_signed, found.ours) == (True, True)
        assert found.ends - found.began == LIFETIME.total_seconds() + 3600

    def test_another_self_signed_one(self) -> None:
        found = inspect(Pair(THEIRS.certificate, THEIRS.key))
        assert (found.self_signed, found.ours) == (True, False)

    def test_one_of_an_authority(self) -> None:
        """Whatever its subject says."""
        authority = issue("ca", authority=True)
        made = issue("node-1", ["localhost"], groups=[MADE_BY], issuer=authority)
        found = inspect(Pair(made.certificate + authority.certificate, made.key))
        assert (found.self_signed, found.ours) == (False, False)
        assert found.ends > found.began

    def test_one_that_has_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = old(monkeypatch, 400)
        found = inspect(made)
        assert found.ours
        assert found.ends == began(made) + 3600 + LIFETIME.total_seconds()

    def test_what_cannot_be_served(self) -> None:
        certificate, key = Authority().server()
        for junk in (Pair(b"junk", b"junk"), Pair(OURS.certificate, key), Pair(certificate, OURS.key)):
            with pytest.raises(OSError, match=r".+"):
                inspect(junk)


def old(monkeypatch: pytest.MonkeyPatch, days: float) -> Pair:
    """A pair that was made so many days ago."""
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
    clock = SimpleNamespace(datetime=SimpleNamespace(now=lambda _zone: then), UTC=datetime.UTC)
    with monkeypatch.context() as patched:
        patched.setattr(internal, "datetime", clock)
        made = issue("node-1", ["localhost"], groups=[MADE_BY])
    return Pair(made.certificate, made.key)


@pytest.mark.row("O15")
class TestInAFolder:
    @pytest.fixture
    def put(self, tmp_path: Path) -> Callable[[Pair], None]:
        def put(pair: Pair) -> None:
            (tmp_path / "ccm.crt").write_bytes(pair.certificate)
            (tmp_path / "ccm.key").write_bytes(pair.key)

        return put

    def folder(self, tmp_path: Path, clock: FakeClock) -> FolderPair:
        return FolderPair(
            str(tmp_path), ["node-1"], pair_name="ccm", maker=lambda _name, _names: NEXT.text, clock=clock
        )

    def test_ours_is_renewed_while_running(self, tmp_path: Path, put: Callable[[Pair], None]) -> None:
        made = Pair(OURS.certificate, OURS.key)
        put(made)
        clock = FakeClock(unix=began(made))
        pair = self.folder(tmp_path, clock)
        clock.advance(243 * DAY)
        assert pair.read() == made
        assert pair.former == b""
        clock.advance(DAY)
        assert pair.read() == Pair(NEXT.certificate, NEXT.key)
        assert pair.former == made.certificate
        assert (tmp_path / "ccm.key").stat().st_mode & 0o777 == 0o600
        clock.advance(DAY)
        assert pair.read().certificate == NEXT.certificate

    def test_ours_that_has_ended_is_renewed_at_the_start(
        self, tmp_path: Path, put: Callable[[Pair], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = old(monkeypatch, 400)
        put(made)
        pair = self.folder(tmp_path, FakeClock(unix=began(made) + 400 * DAY))
        tls = ServerTLS(pair)
        tls.load()
        assert (tmp_path / "ccm.crt").read_bytes() == NEXT.certificate

    def test_anothers_is_left(self, tmp_path: Path, put: Callable[[Pair], None]) -> None:
        made = Pair(THEIRS.certificate, THEIRS.key)
        put(made)
        clock = FakeClock(unix=began(made) + 400 * DAY)
        assert self.folder(tmp_path, clock).read() == made

    def test_one_that_cannot_be_written_stays_in_use(
        self,
        tmp_path: Path,
        put: Callable[[Pair], None],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        made = Pair(OURS.certificate, OURS.key)
        put(made)
        clock = FakeClock(unix=began(made) + 300 * DAY)
        pair = self.folder(tmp_path, clock)

        def refuse(path: str, _data: bytes, _mode: int) -> None:
            raise OSError(30, "Read-only file system", path)

        with monkeypatch.context() as patched:
            patched.setattr(certificates, "_write", refuse)
            for _ in range(3):
                assert pair.read() == made
        assert len([line for line in caplog.messages if "cannot be renewed: [Errno 30]" in line]) == 1
        clock.advance(DAY)
        assert pair.read().certificate == NEXT.certificate

    def test_a_disk_that_is_full_in_the_middle_leaves_the_pair_whole(
        self, tmp_path: Path, put: Callable[[Pair], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A key beside another certificate would end the next start."""
        made = Pair(OURS.certificate, OURS.key)
        put(made)
        pair = self.folder(tmp_path, FakeClock(unix=began(made) + 300 * DAY))
        write = certificates._write

        def key_alone(path: str, data: bytes, mode: int) -> None:
            if ".crt" in path:
                raise OSError(28, "No space left on device", path)
            write(path, data, mode)

        monkeypatch.setattr(certificates, "_write", key_alone)
        assert [pair.read(), pair.read()] == [made, made]
        assert FilePair(str(tmp_path / "ccm.crt"), str(tmp_path / "ccm.key")).read() == made

    def test_half_a_pair_is_not_touched(self, tmp_path: Path, put: Callable[[Pair], None]) -> None:
        put(Pair(OURS.certificate, THEIRS.key))
        clock = FakeClock(unix=began(Pair(OURS.certificate, b"")) + 400 * DAY)
        assert self.folder(tmp_path, clock).read().key == THEIRS.key


@pytest.mark.row("O15")
class TestExpiry:
    def test_the_gauge_and_a_warning_a_day(self, caplog: pytest.LogCaptureFixture) -> None:
        made = Pair(THEIRS.certificate, THEIRS.key)
        metrics, ends = Metrics(), began(made) + 3600 + LIFETIME.total_seconds()
        clock = FakeClock(unix=ends - 31 * DAY)
        expiry = Expiry("webhook", metrics, clock)
        caplog.set_level(logging.WARNING)

        def left(days: float) -> float:
            clock.advance(days * DAY)
            expiry.look("a.crt and a.key", made)
            return there(metrics.value("serving_certificate_remaining_seconds", port="webhook")) / DAY

        assert left(0) == pytest.approx(31)
        assert caplog.messages == []
        assert left(1) == pytest.approx(30)
        assert left(0.5) == pytest.approx(29.5)
        [line] = caplog.messages
        assert line == "HTTPS: the certificate of the webhook port (a.crt and a.key) ends in 30.0 days: replace it"
        assert left(31) == pytest.approx(-1.5)
        assert caplog.messages[1:] == [line.replace("ends in 30.0 days", "ended 1.5 days ago")]

    def test_one_with_a_short_life_is_nothing_to_tell(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("cloudprovider.internal.certificates.LIFETIME", datetime.timedelta(days=40))
        issued = issue("x", ["localhost"])
        made = Pair(issued.certificate, issued.key)
        clock = FakeClock(unix=began(made) + 29 * DAY)
        expiry = Expiry("secure", Metrics(), clock)
        expiry.look("a", made)
        assert caplog.messages == []
        clock.advance(3 * DAY)
        expiry.look("a", made)
        assert len(caplog.messages) == 1

    def test_a_server_tells_of_what_it_serves(self, tmp_path: Path) -> None:
        certificate, key = Authority().server_files(tmp_path)
        seen: list[tuple[str, bytes]] = []
        pair = FilePair(str(certificate), str(key))
        tls = ServerTLS(pair, served=lambda name, one: seen.append((name, one.certificate)))
        tls.load()
        first = certificate.read_bytes()
        os.remove(certificate)
        tls.look()
        assert seen == [(pair.name, first)] * 2
