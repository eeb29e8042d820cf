"""The tokeniser: which words a text has, and that events and subscriptions agree on them."""

from __future__ import annotations

import pickle
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Event, Matcher, Subscription
from nearcast.errors import MissingExtraError, ValidationError
from nearcast.model import text as module
from nearcast.model.codec import event_from_json, event_to_json
from nearcast.model.text import ENGLISH_STOP_WORDS, Tokeniser, words_of

EXAMPLES = {
    "": set(),
    " \n\t!?": set(),
    "Huge SALE on shoes!": {"huge", "sale", "on", "shoes"},
    "don't 'quote' rock'n'roll dogs'": {"don't", "quote", "rock'n'roll", "dogs"},
    "don\u2019t": {"don't"},
    "e-mail snake_case": {"e", "mail", "snake", "case"},
    "3.5 stars, 1.2.3a end.Start": {"3.5", "stars", "1", "2", "3a", "end", "start"},
    "STRASSE Straße ﬁne ｆｕｌｌ": {"strasse", "fine", "full"},
    "cafe\u0301 café": {"café"},
    "हिन्दी भाषा": {"हिन्दी", "भाषा"},
    "日本語かな": set("日本語かな"),
    "東京2026年": {"東", "京", "2026", "年"},
    "👍 ok": {"ok"},
    "x" * 100_000: {"x" * 100_000},
}


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: ascii(text[:20]))
def test_the_words_of_a_text(text: str):
    assert words_of(text) == EXAMPLES[text]


def test_ten_thousand_words():
    assert words_of(" ".join(f"w{i}" for i in range(10_000))) == {f"w{i}" for i in range(10_000)}


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_words_are_keywords_and_hold_no_blanks(text: str):
    words = words_of(text)
    assert Event(id="e", text=text).keywords == words
    assert not any(c.isspace() or c in "!?_-" for word in words for c in word)


@given(st.text(st.characters(max_codepoint=127), max_size=40))
@settings(max_examples=200, deadline=None)
def test_ascii_is_no_special_case(text: str):
    assert words_of(text) == words_of(text + " é") - {"é"}


def test_stop_words_and_stems():
    plain = Tokeniser(stop_words={"ON"})
    assert plain("Shoes on Sale") == {"shoes", "sale"}
    stemmed = Tokeniser(ENGLISH_STOP_WORDS, stem="english")
    assert stemmed("the running shoes") == stemmed("a shoe runs") == {"run", "shoe"}
    assert Tokeniser(stem="german")("Häuser") == Tokeniser(stem="german")("Haus")
    assert pickle.loads(pickle.dumps(stemmed)) == stemmed
    assert stemmed != plain


def test_what_is_refused():
    with pytest.raises(ValidationError, match="stem"):
        Tokeniser(stem="klingon")
    with pytest.raises(ValidationError, match="stop_words"):
        Tokeniser(stop_words="the")
    for bad in (7, b"sale", "\ud800"):
        with pytest.raises(ValidationError, match="text"):
            Event(id="e", text=bad)  # type: ignore[arg-type]


def test_a_missing_stemmer_names_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(MissingExtraError, match=r"nearcast\[text\]"):
        module.Tokeniser(stem="english")


def test_text_joins_the_keywords():
    event = Event(id="e", keywords={"NEW"}, text="Huge SALE on shoes!")
    assert event.keywords == {"new", "huge", "sale", "on", "shoes"}
    stemmed = Tokeniser(ENGLISH_STOP_WORDS, stem="english")
    event = Event(id="e", text="Huge SALE on shoes!", tokeniser=stemmed)
    assert event.keywords == {"huge", "sale", "shoe"}
    matcher = Matcher()
    matcher.add_subscriptions(
        [
            Subscription(id="s1", keywords=words_of("Shoe SALES", stemmed)),
            Subscription(id="s2", keywords=words_of("red shoes", stemmed)),
        ]
    )
    assert matcher.match_event(event) == ["s1"]
    assert pickle.loads(pickle.dumps(event)) == event


def test_text_on_the_wire():
    envelope = event_to_json(Event(id="e", keywords={"new"}))
    envelope["data"]["text"] = "Huge SALE"
    assert event_from_json(envelope).keywords == {"new", "huge", "sale"}
    envelope["data"]["text"] = ["no", "text"]
    with pytest.raises(ValidationError, match=r"data\.text"):
        event_from_json(envelope)
