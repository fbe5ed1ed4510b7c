"""Numbers that people write are read, or refused, in one way."""

import pytest

from innet.machine.numbers import is_number, is_port


@pytest.mark.parametrize("text", ["0", "007", "65535", "18446744073709551615"])
def test_natural_numbers_are_numbers(text: str):
    assert is_number(text)


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", " 1", "1_000", "²", "\u0661", "9" * 5000])
def test_what_int_may_refuse_or_people_may_misread_is_no_number(text: str):
    assert not is_number(text)


@pytest.mark.parametrize(("text", "expected"), [("0", True), ("65535", True), ("65536", False)])
def test_a_port_has_16_bits(text: str, expected: bool):
    assert is_port(text) == expected
