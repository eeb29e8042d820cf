"""`nearcast cpsl`: check a pattern, draw its graph, run it over a history of events."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.errors import DatasetError, NearcastError, PatternError, ValidationError

if TYPE_CHECKING:
    from nearcast.cpsl.composite import Composite
    from nearcast.cpsl.instances import CompositeEvent
    from nearcast.model.events import Event
    from nearcast.model.geometry import Space

__all__ = ["cpsl"]

cpsl = typer.Typer(
    help="Patterns of events in space and time: check, draw and run them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

PatternFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="CPSL text; - reads standard input.")
]
RegionsFile = Annotated[
    Path | None,
    typer.Option("--regions", help="GeoJSON features whose names the pattern may use."),
]
InSpace = Annotated[str, typer.Option("--space", help="globe or planar.")]


@cpsl.command()
def check(
    file: PatternFile,
    regions: RegionsFile = None,
    space: InSpace = "globe",
) -> None:
    """Say what is wrong with a pattern, and where; or show its normal form.

    Exit code 0 if the pattern is sound, 1 if it is not.
    """
    from nearcast.cpsl.analyze import problems
    from nearcast.cpsl.parser import parse
    from nearcast.cpsl.printer import format_lines

    text = _text(file)
    try:
        pattern = parse(text, _regions(regions))
        found = problems(pattern, text, space=_space(space))
    except PatternError as error:
        found = [error]
    for each in found:
        print(f"{file}: {each}", file=sys.stderr)
    if found:
        raise typer.Exit(1)
    print(format_lines(pattern))


@cpsl.command()
def draw(
    file: PatternFile,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the SVG goes; standard output.")
    ] = None,
    regions: RegionsFile = None,
) -> None:
    """Draw the pattern's graph as SVG: equal expressions once, operators above operands."""
    from nearcast.cpsl.analyze import analyze
    from nearcast.cpsl.draw import draw as drawn
    from nearcast.cpsl.parser import parse

    text = _text(file)
    picture = drawn(analyze(parse(text, _regions(regions)), text))
    _write(out, picture)


@cpsl.command()
def run(
    file: PatternFile,
    events: Annotated[
        Path, typer.Option("--events", help="JSON lines, or a JSON list, of events.")
    ],
    consume: Annotated[
        str, typer.Option("--consume", help="The consumption mode.")
    ] = "first-matching",
    space: InSpace = "globe",
    lateness: Annotated[str, typer.Option(help="How late events may come.")] = "0",
    until: Annotated[
        str | None, typer.Option(help="Go on to this time after the last event (RFC 3339).")
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Say why each detection happened.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object a detection.")] = False,
    regions: RegionsFile = None,
) -> None:
    """Replay a history of events and show what the pattern finds in it.

    Events are CloudEvents with GeoJSON data, or bare GeoJSON features with `start`, `end` and
    an `id` (docs/cpsl.md). Time goes on to the last event, or to --until, so that absences whose
    windows are over by then are found.
    """
    from nearcast.cpsl.composite import Composite
    from nearcast.cpsl.detector import Detector

    chosen: Any = consume
    composite = Composite(id=file.stem, text=_text(file), consume=chosen, regions=_regions(regions))
    history = list(_history(events, _space(space)))
    detector = Detector(space=_space(space), lateness=lateness)
    detector.add(composite)
    found = detector.feed(history)
    moment = max((e.end or e.start or 0 for e in history), default=None)
    if until is not None:
        found += detector.advance(until)
    elif moment is not None:
        found += detector.advance(moment)
    for detection in found:
        if json_:
            _show_json(detection)
            continue
        _show(detection)
        if trace:
            _show_trace(detection, composite, history, detector.space)
    if not json_:
        count = f"{len(found)} detection{'s' * (len(found) != 1)}"
        print(f"{count} in {len(history)} events", file=sys.stderr)


@cpsl.command()
def syntax(
    into: Annotated[
        Path | None, typer.Option("--into", help="Write it into this page, between its marks.")
    ] = None,
) -> None:
    """Show the grammar, as docs/cpsl.md has it."""
    from nearcast.cpsl.syntax import replaced
    from nearcast.cpsl.syntax import syntax as described

    _write(into, described() if into is None else replaced(_read(into)))


def _show_json(detection: CompositeEvent) -> None:
    from nearcast.model.codec import event_to_json

    told = {"composite": detection.composite_id, "parts": list(detection.parts)}
    print(json.dumps(told | {"event": event_to_json(detection)}))


def _show(detection: CompositeEvent) -> None:
    from nearcast.clock import format_micros

    assert detection.start is not None
    assert detection.end is not None
    when = f"{format_micros(detection.start)} … {format_micros(detection.end)}"
    bound = "".join(f" {name}={value!r}" for name, value in detection.attributes.items())
    print(f"{detection.id}  {when}  {' '.join(detection.parts) or '(no events)'}{bound}")


def _show_trace(
    detection: CompositeEvent, composite: Composite, history: list[Event], space: Space
) -> None:
    from nearcast.cpsl.trace import trace

    known = {event.id: event for event in history}
    parts = [known[part] for part in detection.parts]
    for line in trace(composite.pattern, parts, detection, space):
        print(f"    {line}")


# --- files --------------------------------------------------------------------------------------


def _text(file: Path) -> str:
    return _read(None if str(file) == "-" else file)


def _read(file: Path | None) -> str:
    """The text of a file, or of standard input: UTF-8, whatever the locale."""
    try:
        return (sys.stdin.buffer.read() if file is None else file.read_bytes()).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        name = "standard input" if file is None else file
        raise DatasetError(f"cannot read {name}: {_reason(error)}; give UTF-8 text") from None


def _write(file: Path | None, text: str) -> None:
    """A document goes to a file, or to standard output: UTF-8, whatever the locale."""
    if file is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8"))
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DatasetError(
            f"cannot write {file}: {_reason(error)}; give a file in a folder that is there"
        ) from None


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: {_unread(error)}") from None


def _unread(error: ValueError | RecursionError) -> str:
    """Why a text was not read: no JSON, or a number of more digits than Python takes."""
    if isinstance(error, RecursionError):
        return "nested too deeply; events are flat"
    return f"not JSON ({error.msg if isinstance(error, json.JSONDecodeError) else error})"


def _space(given: str) -> Space:
    from nearcast.model.geometry import SPACES

    if given not in SPACES:
        raise ValidationError("space", given, f"choose one of {', '.join(SPACES)}")
    return given


def _regions(file: Path | None) -> dict[str, Any]:
    """Named regions of a GeoJSON FeatureCollection: their `name` property, or their id."""
    if file is None:
        return {}
    from nearcast.model.codec.places import location_from_json

    document = _json(_read(file), f"{file} is no GeoJSON FeatureCollection with names")
    try:
        features = document["features"]
        return {
            str((f.get("properties") or {}).get("name") or f["id"]): location_from_json(
                f["geometry"], "planar", "geometry"
            )
            for f in features
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise DatasetError(
            f"{file} is no GeoJSON FeatureCollection with names: {error!r}"
        ) from None


def _history(file: Path, space: Space) -> Iterator[Event]:
    """The events of a file: JSON lines, a JSON list, or a GeoJSON FeatureCollection."""
    text = _read(file)
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        lines = text.split("\n")  # and nowhere else: strings may hold U+2028 and its like
        for number, line in enumerate(lines, 1):
            where = f"{file}, line {number}"
            if line.strip():
                yield _event(_json(line, where), space, where)
        return
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{file}: {_unread(error)}") from None
    if isinstance(whole, dict) and whole.get("type") == "FeatureCollection":
        whole = whole.get("features", [])
    for number, each in enumerate(whole if isinstance(whole, list) else [whole]):
        yield _event(each, space, f"{file}, event {number}")


def _event(given: Any, space: Space, where: str) -> Event:
    from nearcast.model.codec import event_from_json

    try:
        if isinstance(given, dict) and given.get("type") == "Feature":
            given = _enveloped(given)
        return event_from_json(given, space=space, extensions="ignore")
    except NearcastError as error:
        raise DatasetError(f"{where}: {error}") from None


def _enveloped(feature: dict[str, Any]) -> dict[str, Any]:
    """A bare feature in the envelope that it would have on the wire."""
    data = {name: value for name, value in feature.items() if name not in ("id", "end", "expires")}
    envelope = {
        "specversion": "1.0",
        "id": None if feature.get("id") is None else str(feature["id"]),
        "source": "file",
        "type": "nearcast.event",
        "data": data,
    }
    end = feature.get("end", feature.get("start"))
    envelope |= {"time": end} if end is not None else {}
    return envelope | ({"expirytime": feature["expires"]} if "expires" in feature else {})
