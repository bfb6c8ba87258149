import pytest

from txlog.config.units import format_duration, format_quantity, parse_duration, parse_quantity


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0", 0), (0, 0), ("500ms", 500), ("60s", 60_000), ("2m", 120_000), ("7d", 604_800_000), ("1w", 604_800_000)],
)
def test_durations_are_milliseconds(text: object, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "60", 60, "1.5s", "-1s", "s", "1 s", "1S", None, True, [], "9" * 20 + "s"])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="a duration"):
        parse_duration(text)


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1000, 60_000, 90_000, 86_400_000, 604_800_000])
def test_a_duration_survives_being_written(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("20Gi", 20 << 30), ("512Mi", 512 << 20), ("10G", 10**10), ("1k", 1000), ("7", 7), (7, 7), ("1.5Gi", 3 << 29)],
)
def test_quantities_are_bytes(text: object, size: int) -> None:
    assert parse_quantity(text) == size


@pytest.mark.parametrize("text", ["", "Gi", "20GB", "20 Gi", "-1Gi", None, False, {}, "1e3"])
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="a size"):
        parse_quantity(text)


@pytest.mark.parametrize("size", [0, 1, 1000, 1024, 20 << 30, 10**10])
def test_a_quantity_survives_being_written(size: int) -> None:
    assert parse_quantity(format_quantity(size)) == size
