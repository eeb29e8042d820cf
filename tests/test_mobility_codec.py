"""Regions as bytes: exact inverses, small, refused when damaged, and read alike by JavaScript."""

from __future__ import annotations

import json
import math
import random
import struct
import subprocess
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyroaring
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import ValidationError
from nearcast.mobility import roaring, wah
from nearcast.mobility.methods import METHODS
from nearcast.mobility.plane import Plane
from nearcast.mobility.safe_region import Ball, Cells, SafeRegion, spread_bits
from nearcast.model.geometry import Point, Space
from tests.moving import looker, near, situation

SCRIPT = Path(__file__).parents[1] / "web" / "safe_region.js"


@st.composite
def runs(draw):
    bound = draw(st.sampled_from([40, 1000, 70_000, 1 << 22]))
    cuts = draw(st.lists(st.integers(0, bound), min_size=2, max_size=80, unique=True))
    cuts = sorted(cuts)[: len(cuts) // 2 * 2]
    return cuts[::2], cuts[1::2], bound


@given(runs())
@settings(max_examples=200, deadline=None)
def test_both_codes_keep_every_run(given_runs):
    starts, stops, bound = given_runs
    assert wah.read(wah.write(starts, stops), bound) == (starts, stops)
    assert roaring.read(roaring.write(starts, stops), bound) == (starts, stops)


@given(runs())
@settings(max_examples=50, deadline=None)
def test_a_roaring_library_reads_what_we_write_and_we_read_what_it_writes(given_runs):
    starts, stops, bound = given_runs
    if bound > 100_000:
        stops = [min(stop, start + 5000) for start, stop in zip(starts, stops, strict=True)]
    numbers = pyroaring.BitMap()
    for start, stop in zip(starts, stops, strict=True):
        numbers.add_range(start, stop)
    assert pyroaring.BitMap.deserialize(roaring.write(starts, stops)) == numbers
    for optimised in (False, True):
        if optimised:
            numbers.run_optimize()
        assert roaring.read(numbers.serialize(), bound) == (starts, stops)


def test_wah_by_hand():
    # 31 ones, 62 zeros, a one: a fill of one group, a fill of two, a literal
    data = wah.write([0, 93], [31, 94])
    assert struct.unpack("<3I", data) == (0xC0000001, 0x80000002, 1)


@given(st.binary(max_size=60))
def test_garbage_is_refused_or_read_but_never_breaks_the_readers(data):
    for reader in (wah.read, roaring.read):
        try:
            starts, stops = reader(data, 4096)
        except ValidationError:
            continue
        assert all(a < b <= 4096 for a, b in zip(starts, stops, strict=True))


def regions() -> list[tuple[SafeRegion, tuple[float, float]]]:
    rng = np.random.default_rng(8)
    found: list[tuple[SafeRegion, tuple[float, float]]] = []
    spots: list[tuple[Space, float, float]] = [
        ("planar", 3e5, -2e5), ("globe", 8.5, 47.4), ("globe", 180.0, 89.99),
    ]  # fmt: skip
    for space, x, y in spots:
        events = []
        for d, a in zip(2100 + 20_000 * rng.random(12), 6.28 * rng.random(12), strict=True):
            events.append((*near(space, x, y, d * math.sin(a), d * math.cos(a)), 2000.0))
        for build in METHODS.values():
            made = build(situation(space, x, y, 2000.0, density=1e-11), looker(space, events))
            found.append((SafeRegion(len(found) + 1, made.shape), (x, y)))
    found.append((SafeRegion(99, Ball("planar", 1.0, 2.0, math.inf)), (0.0, 0.0)))
    found.append((SafeRegion(7, Cells(Plane("planar", 0, 0, 1e9), 0, 0, 1, 0, (), ())), (0.0, 0.0)))
    return found


REGIONS = regions()


def places(region: SafeRegion, x: float, y: float) -> list[tuple[float, float]]:
    space: Space = "globe" if region.encode()[4] == 0 else "planar"
    rng = random.Random(1)
    return [near(space, x, y, rng.gauss(0, 9000), rng.gauss(0, 9000)) for _ in range(200)]


@pytest.mark.parametrize(("region", "at"), REGIONS)
def test_decode_is_the_inverse_of_encode(region, at):
    data = region.encode()
    again = SafeRegion.decode(data)
    assert again.epoch == region.epoch
    assert SafeRegion.decode(again.encode()).shape.__class__ is region.shape.__class__
    different = 0
    for p in places(region, *at):
        if again.contains(Point(*p)):
            assert region.contains(Point(*p))  # what rounding takes, it takes from the client
        different += again.contains(Point(*p)) != region.contains(Point(*p))
    assert different <= 1


@given(st.lists(st.tuples(*[st.floats(-1e7, 1e7)] * 2, st.floats(0, 1e6)), min_size=1, max_size=4))
def test_a_disc_that_is_sent_holds_the_one_that_was_made(discs):
    """Discs are to be kept out of: rounding to four bytes must not let anybody in."""
    made = Cells(Plane("planar", 0, 0, 1e9), 0, 0, 1, 0, (), (), tuple(discs))
    shape = SafeRegion.decode(SafeRegion(1, made).encode()).shape
    assert isinstance(shape, Cells)
    for (x, y, radius), (near_x, near_y, wide) in zip(discs, shape.discs, strict=True):
        dx, dy = Fraction(near_x) - Fraction(x), Fraction(near_y) - Fraction(y)
        assert dx * dx + dy * dy <= (Fraction(wide) - Fraction(radius)) ** 2
        assert wide >= radius
        assert wide <= radius + abs(x) * 1e-6 + abs(y) * 1e-6 + radius * 1e-6 + 1e-20


@pytest.mark.needs("node")
def test_javascript_agrees_with_python():
    cases: list[dict[str, Any]] = []
    for region, at in REGIONS:
        points = places(region, *at)
        decoded = SafeRegion.decode(region.encode())
        cases.append({"hex": region.encode().hex(), "epoch": region.epoch, "points": points,
                      "inside": [decoded.contains(Point(*p)) for p in points]})  # fmt: skip
    assert sum(sum(case["inside"]) for case in cases) > 100
    damaged = [bytes.fromhex(case["hex"]) for case in cases[:6]]
    bad = [d[:9].hex() for d in damaged] + [(d[:20] + b"\x55" + d[21:]).hex() for d in damaged]
    program = f"""
      import {{ decode, RegionError }} from {json.dumps(SCRIPT.as_uri())};
      const chunks = []; for await (const chunk of process.stdin) chunks.push(chunk);
      const {{ cases, bad }} = JSON.parse(Buffer.concat(chunks).toString());
      let wrong = 0;
      for (const c of cases) {{
        const region = decode(Uint8Array.from(Buffer.from(c.hex, "hex")));
        if (region.epoch !== c.epoch) wrong++;
        c.points.forEach(([x, y], i) => {{ if (region.contains(x, y) !== c.inside[i]) wrong++; }});
      }}
      let refused = 0;
      for (const hex of bad) {{
        try {{ decode(Uint8Array.from(Buffer.from(hex, "hex"))); }}
        catch (error) {{ if (error instanceof RegionError) refused++; }}
      }}
      console.log(JSON.stringify({{ wrong, refused }}));
    """
    ran = subprocess.run(
        ["node", "--input-type=module", "-e", program],
        input=json.dumps({"cases": cases, "bad": bad}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(ran.stdout) == {"wrong": 0, "refused": len(bad)}


@given(st.sampled_from(range(len(REGIONS))), st.integers(0, 10_000), st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_one_damaged_byte_is_refused(which, at, change):
    data = bytearray(REGIONS[which][0].encode())
    data[at % len(data)] ^= change
    with pytest.raises(ValidationError, match="region"):
        SafeRegion.decode(bytes(data))


@given(
    st.sampled_from(range(len(REGIONS))),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 10_000),
)
@settings(max_examples=300, deadline=None)
def test_forged_bytes_are_refused_clearly_or_are_a_region(which, changes, cut):
    """With a right checksum nothing but the content protects the reader."""
    data = bytearray(REGIONS[which][0].encode()[:-4])
    for at, value in changes:
        data[at % len(data)] = value
    data = data[: max(5, len(data) - (cut % 3) * (cut % 50))]
    whole = bytes(data) + struct.pack("<I", zlib.crc32(bytes(data)))
    try:
        region = SafeRegion.decode(whole)
    except ValidationError:
        return
    region.contains(Point(8.5, 47.4))


@pytest.mark.parametrize("bad", [b"", b"nR", b"xx" * 20, "text", None, b"nR\x02" + bytes(30)])
def test_what_is_no_region_is_refused(bad):
    with pytest.raises(ValidationError, match="region"):
        SafeRegion.decode(bad)


def test_numbers_in_z_order():
    assert [spread_bits(c) | spread_bits(r) << 1 for r in (0, 1) for c in (0, 1)] == [0, 1, 2, 3]
    assert spread_bits(0xFFFF) == 0x55555555
