"""A fallback that goes through the switch, and would fail together with it, is noticed."""

import logging

import pytest

from innet.host.fallback_network import through_switch, warn_of_shared_network

HERE = "127.0.0.1"


@pytest.mark.parametrize(
    ("own_ip", "environment", "found"),
    [
        (HERE, {"MASTER_ADDR": HERE}, [f"MASTER_ADDR={HERE}"]),
        (HERE, {"GLOO_SOCKET_IFNAME": "lo"}, ["GLOO_SOCKET_IFNAME=lo"]),
        (HERE, {"GLOO_SOCKET_IFNAME": "none,lo"}, ["GLOO_SOCKET_IFNAME=none,lo"]),
        ("10.0.0.1", {"MASTER_ADDR": HERE, "GLOO_SOCKET_IFNAME": "lo"}, []),
        (HERE, {}, []),
        (HERE, {"MASTER_ADDR": "", "GLOO_SOCKET_IFNAME": "no-such-interface"}, []),
    ],
)
def test_settings_that_lead_through_the_switch_are_found(
    own_ip: str, environment: dict[str, str], found: list[str]
):
    assert through_switch(own_ip, environment) == found


def test_the_warning_names_the_settings_and_what_to_do(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        warn_of_shared_network("10.0.0.1", {"MASTER_ADDR": HERE})
        assert not caplog.records
        warn_of_shared_network(HERE, {"MASTER_ADDR": HERE})
    assert f"(MASTER_ADDR={HERE})" in caplog.text
    assert "let MASTER_ADDR and GLOO_SOCKET_IFNAME name another network" in caplog.text
