"""Words out of running text, made comparable as keywords are.

A word is a run of Unicode letters, marks and digits; an apostrophe between letters and a dot
between digits belong to it, an underscore or a hyphen does not: `don't` and `3.5` are one
word, `e-mail` is two. Every character of Han and kana, which are written without spaces, is a
word of its own; Thai and its neighbours are cut at spaces only. These are the word boundaries
of Unicode (UAX #29) as far as one regular expression can tell them: no dictionary, the same
answer everywhere. Text is brought to NFKC before, and folded in case after, as keywords are.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from nearcast.errors import MissingExtraError, ValidationError
from nearcast.model.words import normalise_word, normalise_words

__all__ = ["ENGLISH_STOP_WORDS", "PLAIN", "Tokeniser", "words_of"]

_HAN_AND_KANA = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U000323af"
)
_ASCII = re.compile(r"(?>[0-9]+(?:\.[0-9]+)+)(?!\w)|[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*")

_STOP_WORDS = """
a an and are as at be but by for from has have if in into is it its no not of on or so such
that the their then there these they this to was we were will with you your
"""
#: English words that say nothing by themselves.
ENGLISH_STOP_WORDS = frozenset(_STOP_WORDS.split())


@dataclass(frozen=True, slots=True)
class Tokeniser:
    """How text becomes words: the same for what is published and for what is wanted.

    `stop_words` are left out (compared after folding). `stem` names a language of the
    Snowball stemmers ("english", "german", …; needs `nearcast[text]`): words are reduced to
    their stems, so "shoes" finds "shoe". Costs about a microsecond a word, stemming ten.

    >>> sorted(Tokeniser()("Huge SALE on shoes!"))
    ['huge', 'on', 'sale', 'shoes']
    >>> sorted(Tokeniser(stop_words=ENGLISH_STOP_WORDS, stem="english")("Huge SALE on shoes!"))
    ['huge', 'sale', 'shoe']
    """

    stop_words: frozenset[str]
    stem: str | None

    def __init__(self, stop_words: Iterable[str] = (), stem: str | None = None) -> None:
        try:
            folded = normalise_words(stop_words)
        except ValidationError as error:
            raise ValidationError("stop_words", error.value, error.remedy) from None
        if stem is not None:
            _stemmer(stem)
        object.__setattr__(self, "stop_words", folded)
        object.__setattr__(self, "stem", stem)

    def __call__(self, text: object) -> frozenset[str]:
        """The words of a text."""
        if not isinstance(text, str):
            raise ValidationError("text", text, "give a string")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValidationError("text", text, "lone surrogates are not text") from None
        found = {normalise_word(word) for word in _split(text)} - self.stop_words
        if self.stem is None:
            return frozenset(found)
        stemmed = _stemmer(self.stem)  # one a call: a stemmer keeps the word it is at
        return frozenset(map(stemmed, found))

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokeniser, (self.stop_words, self.stem)


def _split(text: str) -> list[str]:
    if text.isascii():
        return _ASCII.findall(text)
    plain = unicodedata.normalize("NFKC", text).replace("\u2019", "'")
    return _unicode().findall(plain)


@cache
def _unicode() -> re.Pattern[str]:
    """The expression for all scripts. Python's `\\w` has no marks: they are looked up here once."""
    marks = _ranges(c for c in range(sys.maxunicode + 1) if _is_mark(c))
    letter = f"(?:[^\\W_{_HAN_AND_KANA}][{marks}]*)"
    number = r"(?>\d+(?:\.\d+)+)(?!\w)"
    return re.compile(f"{number}|[{_HAN_AND_KANA}][{marks}]*|{letter}+(?:'{letter}+)*")


def _is_mark(code: int) -> bool:
    """Whether a character only changes the one before it; zero-width joiners do."""
    return code == 0x200D or (code < 0xE01F0 and unicodedata.category(chr(code))[0] == "M")


def _ranges(codes: Iterable[int]) -> str:
    """Codes, ascending, as the inside of a character class."""
    found: list[list[int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in found)


def _stemmer(language: object) -> Callable[[str], str]:
    try:
        import snowballstemmer
    except ImportError:
        raise MissingExtraError("snowballstemmer", "text") from None
    known = snowballstemmer.algorithms()
    if language not in known:
        raise ValidationError("stem", language, f"give one of {', '.join(sorted(known))}")
    stem: Callable[[str], str] = snowballstemmer.stemmer(language).stemWord
    return stem


#: No stop words, no stems: what `Event(text=…)` uses unless it is told otherwise.
PLAIN = Tokeniser()


def words_of(text: str, tokeniser: Tokeniser | None = None) -> frozenset[str]:
    """The words of a text, for `keywords` of an event or of a subscription.

    >>> sorted(words_of("red shoes"))
    ['red', 'shoes']
    """
    return (PLAIN if tokeniser is None else tokeniser)(text)
