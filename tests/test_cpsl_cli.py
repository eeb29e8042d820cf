"""`nearcast cpsl`, its worked examples, and the page that describes the language."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given, settings
from typer.testing import CliRunner

from nearcast import Box, Composite, Event, Point
from nearcast.cli import app
from nearcast.cpsl import ast
from nearcast.cpsl.composite import MODES
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.draw import draw
from nearcast.cpsl.parser import grammar_text, parse
from nearcast.cpsl.syntax import replaced, syntax
from nearcast.cpsl.trace import trace
from nearcast.errors import ValidationError
from tests.cpsl_expressions import expressions

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "docs" / "examples" / "cpsl").glob("*.cpsl"))
REGIONS = str(ROOT / "docs" / "examples" / "cpsl" / "regions.geojson")
SVG = "{http://www.w3.org/2000/svg}"


def run(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["cpsl", *arguments], input=stdin)
    return result.exit_code, result.stdout, result.stderr


def options(example: Path) -> list[str]:
    expected = json.loads(example.with_suffix(".expected.json").read_text())
    return [REGIONS if each.endswith(".geojson") else each for each in expected["options"]]


# --- examples -------------------------------------------------------------------------------------


def test_there_are_at_least_ten_examples_and_the_page_names_them():
    page = (ROOT / "docs" / "cpsl.md").read_text()
    listed = " ".join(page.split())
    assert len(EXAMPLES) >= 10
    for example in EXAMPLES:
        assert example.stem.replace("-", " ") in listed, example.stem


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_finds_what_it_says(example: Path):
    events = str(example.with_suffix(".jsonl"))
    expected = json.loads(example.with_suffix(".expected.json").read_text())
    code, out, _ = run("run", str(example), "--events", events, "--json", *options(example))
    assert code == 0
    assert [json.loads(line)["parts"] for line in out.splitlines()] == expected["detections"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_detection_of_an_example_is_traced(example: Path):
    events = str(example.with_suffix(".jsonl"))
    expected = json.loads(example.with_suffix(".expected.json").read_text())
    code, out, err = run("run", str(example), "--events", events, "--trace", *options(example))
    assert code == 0
    heads = [line for line in out.splitlines() if not line.startswith(" ")]
    assert len(heads) == len(expected["detections"])
    for parts in expected["detections"]:
        for part in parts:
            assert re.search(rf": {part}, 2026-", out), part
    root = parse(
        example.read_text(),
        {"depot": Box(0, 0, 1, 1), "shop": Box(0, 0, 1, 1), "gate": Point(0, 0)},
    )
    assert out.splitlines()[1].strip().startswith(root.expression.symbol)
    assert "detection" in err


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_sound_and_can_be_drawn(example: Path, tmp_path: Path):
    regions = ["--regions", REGIONS] if "--regions" in options(example) else []
    code, normal, _ = run("check", str(example), *regions)
    assert code == 0
    again = tmp_path / "again.cpsl"
    again.write_text(normal)
    assert run("check", str(again)) == (0, normal, "")
    picture = tmp_path / "picture.svg"
    assert run("draw", str(example), "--out", str(picture), *regions)[0] == 0
    assert ElementTree.parse(picture).getroot().tag == f"{SVG}svg"


# --- check ----------------------------------------------------------------------------------------


def test_check_shows_every_error_with_its_place():
    text = "@((1,1),(2,2))(ARITH: a = &x)\n && P(0)ARITH: b = 1"
    code, out, err = run("check", "-", stdin=text)
    assert code == 1
    assert out == ""
    assert re.findall(r"line (\d), column (\d+)", err) == [("1", "3"), ("1", "27"), ("2", "5")]
    assert "  @((1,1),(2,2))(ARITH: a = &x)\n    ^" in err


def test_check_of_a_syntax_error():
    code, _, err = run("check", "-", stdin="ARITH: a ==")
    assert code == 1
    assert "line 1, column 11: '=' does not fit here" in err


def test_check_knows_the_space():
    text = "DIST((8.5, 95); <; 5)(ARITH: a = 1)"
    assert run("check", "-", stdin=text)[0] == 1
    assert run("check", "-", "--space", "planar", stdin=text) == (0, f"{text}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "nowhere.cpsl"], "cannot read nowhere.cpsl"),
        (["check", "-", "--space", "mars"], "choose one of globe, planar"),
        (["check", "-", "--regions", "nowhere.json"], "cannot read nowhere.json"),
        (["check", "-", "--regions", str(EXAMPLES[0])], "no GeoJSON FeatureCollection"),
        (["run", "-", "--events", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["run", "-", "--events", str(EXAMPLES[0])], "line 1: not JSON"),
        (["run", "-", "--events", REGIONS], "event 0: id"),
        (["run", "-", "--events", REGIONS, "--consume", "all"], "choose one of first-matching"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(arguments: list[str], message: str):
    code, _, err = run(*arguments, stdin="ARITH: a = 1")
    assert code == 2
    assert message in err


# --- draw -----------------------------------------------------------------------------------------


def test_equal_expressions_are_drawn_once():
    pattern = parse("$x; && |($x;)$y;, $x; = (ARITH: a = 1), $y; = (ARITH: a = 1)")
    drawn = ElementTree.fromstring(draw(pattern))
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert texts.count("ARITH: a = 1") == 1
    assert "$x; $y;" in texts
    assert len(list(drawn.iter(f"{SVG}path"))) == 4 + 1  # and the tip


def test_draw_writes_to_standard_output():
    code, out, _ = run("draw", "-", stdin='Q(2)(STRING: a < "<&>")'.replace("<", "=", 1))
    assert code == 0
    assert ElementTree.fromstring(out).tag == f"{SVG}svg"


@settings(max_examples=40, deadline=None)
@given(expressions)
def test_any_expression_can_be_drawn(expression: ast.Expression):
    references = {n.name for n in ast.walk(expression) if isinstance(n, ast.Reference)}
    leaf = parse("ARITH: a = 1").expression
    pattern = ast.Pattern(expression, tuple(ast.Definition(name, leaf) for name in references))
    drawn = ElementTree.fromstring(draw(pattern))
    boxes = [r for r in drawn.iter(f"{SVG}rect") if r.get("class")]
    assert len(boxes) >= 1
    spots = [tuple(float(r.get(k, "0")) for k in ("x", "y", "width", "height")) for r in boxes]
    for number, (x, y, width, height) in enumerate(spots):
        for ox, oy, owidth, oheight in spots[:number]:
            apart = x >= ox + owidth or ox >= x + width or y >= oy + oheight or oy >= y + height
            assert apart


# --- run ------------------------------------------------------------------------------------------

FEATURES = [
    {"type": "Feature", "id": n, "end": f"2026-03-01T12:00:0{n}Z", "geometry": None,
     "properties": {"a": n}}
    for n in (1, 2)
]  # fmt: skip


def test_a_history_may_be_lines_a_list_or_a_collection(tmp_path: Path):
    file = tmp_path / "history.json"
    outputs = set()
    for text in (
        "\n".join(map(json.dumps, FEATURES)),
        json.dumps(FEATURES),
        json.dumps({"type": "FeatureCollection", "features": FEATURES}),
    ):
        file.write_text(text)
        code, out, err = run("run", "-", "--events", str(file), stdin="Q(2)(ARITH: a > 0)")
        assert code == 0
        assert "1 detection in 2 events" in err
        outputs.add(out)
    assert len(outputs) == 1


def test_a_bad_event_is_named(tmp_path: Path):
    file = tmp_path / "history.jsonl"
    file.write_text(json.dumps(FEATURES[0]) + '\n{"type": "Feature", "id": 3}\n[1')
    code, _, err = run("run", "-", "--events", str(file), stdin="ARITH: a = 1")
    assert code == 2
    assert "line 3: not JSON" in err


def test_time_goes_on_until_it_is_told(tmp_path: Path):
    file = tmp_path / "history.jsonl"
    file.write_text("\n".join(map(json.dumps, FEATURES)))
    absence = "!(ARITH: a = 1; 1)(ARITH: a = 3)"
    assert run("run", "-", "--events", str(file), stdin=absence)[1].startswith("-#1")
    longer = "!(ARITH: a = 1; 60)(ARITH: a = 3)"
    assert run("run", "-", "--events", str(file), stdin=longer)[1] == ""
    until = ["--until", "2026-03-01T12:02:00Z"]
    assert run("run", "-", "--events", str(file), *until, stdin=longer)[1].startswith("-#1")


# --- trace ----------------------------------------------------------------------------------------

TRACED = [
    "=|(0; 100)(ARITH: a = 1)",
    "|=(0; 1)(ARITH: a = 2)",
    "|=(ARITH: a = 1; ARITH: a = 2)(ARITH: a = 3)",
    "|=(ARITH: a = 1; 1)(ARITH: a = 3)",
    "=|(ARITH: a = 1; ARITH: a = 3)(ARITH: a = 2)",
    "!(ARITH: a = 1; ARITH: a = 3)(ARITH: a = 4)",
    "ARITH: a = 1 || ARITH: a = 2",
    "ARITH: a = 3 && ARITH: a = 1",
    "P(5)(ARITH: a < 3)",
    "|(ARITH: b = 1)(ARITH: b = 2)",
    "IN(ARITH: b = 1)(ARITH: a = 4) || OVLP(ARITH: b = 1)(ARITH: a = 4)",
    "SPL((4,4))(ARITH: a = 4) || DIST(ARITH: a = 4; =; 0)(ARITH: b = 1)",
]


@pytest.mark.parametrize("text", TRACED)
@pytest.mark.parametrize("mode", MODES)
def test_traces_name_every_part(text: str, mode: str):
    history = [
        Event(id=f"e{n}", attributes={"a": n}, location=Point(n, n), end=n * 1_000_000)
        for n in range(1, 5)
    ]
    history += [
        Event(id=f"b{n}", attributes={"b": n}, location=Box(0, 0, 5, 5), start=0, end=5_000_000 + n)
        for n in (1, 2)
    ]
    detector = Detector(space="planar")
    composite = Composite(id="c", text=text, consume=mode)  # type: ignore[arg-type]
    detector.add(composite)
    found = detector.feed(history) + detector.advance(60_000_000)
    assert found
    for detection in found:
        parts = [event for event in history if event.id in detection.parts]
        lines = trace(composite.pattern, parts, detection, "planar")
        for part in detection.parts:
            assert any(f": {part}, 1970-" in line for line in lines), (part, lines)


# --- the page -------------------------------------------------------------------------------------


def test_the_page_has_the_grammar_as_it_is():
    page = (ROOT / "docs" / "cpsl.md").read_text()
    assert replaced(page) == page, "run: nearcast cpsl syntax --into docs/cpsl.md"


def test_the_grammar_on_the_page_is_whole():
    shown = syntax()
    rules = re.findall(r"^\??(\w+)(?:\.\d)?\s*:", grammar_text(), re.MULTILINE)
    assert len(rules) > 40
    for rule in rules:
        assert re.search(rf"^{rule} +::=", shown, re.MULTILINE), rule
    assert grammar_text().count('"DIST"') == shown.count('"DIST"') == 1


def test_syntax_is_shown_and_written(tmp_path: Path):
    assert run("syntax") == (0, syntax(), "")
    page = tmp_path / "page.md"
    page.write_text("no marks")
    assert run("syntax", "--into", str(page))[0] == 2
    with pytest.raises(ValidationError):
        replaced("no marks")
