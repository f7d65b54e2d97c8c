"""What a context speaks is ours to say, not that of the interpreter or the distribution."""

from __future__ import annotations

from ssl import TLSVersion

import pytest

from shared.http.tls import TlsSettings, shared_context


@pytest.mark.parametrize(
    ("settings", "oldest"),
    [
        (TlsSettings(), TLSVersion.TLSv1_2),
        (TlsSettings(verify=False), TLSVersion.TLSv1_2),
        (TlsSettings(lenient=True), TLSVersion.MINIMUM_SUPPORTED),
        (TlsSettings(newest_only=True), TLSVersion.TLSv1_3),
    ],
    ids=["usual", "unverified", "lenient", "newest only"],
)
def test_the_oldest_protocol_is_said_outright(settings: TlsSettings, oldest: TLSVersion) -> None:
    assert shared_context(settings).minimum_version is oldest
