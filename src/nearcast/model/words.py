"""Keywords: how words are made comparable."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from nearcast.errors import ValidationError

__all__ = ["normalise_word", "normalise_words"]

_NONE: frozenset[str] = frozenset()
_COLLECTIONS = frozenset((tuple, list, set, frozenset))


def normalise_word(word: object) -> str:
    """A word in Unicode NFKC, case folded: what two words are compared by.

    Once is not always enough: folding takes characters apart that NFKC puts together again.
    So it is repeated until nothing changes, and a normalised word is its own.

    >>> normalise_word("STRAẞE")
    'strasse'
    """
    if not isinstance(word, str):
        raise ValidationError("keywords", word, "a keyword is a string")
    if word.isascii():
        folded = word.lower()
    else:
        folded = word
        while (again := unicodedata.normalize("NFKC", folded).casefold()) != folded:
            folded = again
        try:
            folded.encode()
        except UnicodeEncodeError:
            raise ValidationError("keywords", word, "lone surrogates are not text") from None
    if not folded.strip():
        raise ValidationError("keywords", word, "a keyword is not blank")
    return folded


def normalise_words(words: object) -> frozenset[str]:
    """The normalised words of a collection; a bare string is refused, not split.

    Whoever has none shares one set: an empty one takes 200 bytes, and Python makes it anew.
    """
    if words is None or (type(words) in _COLLECTIONS and not words):
        return _NONE
    if isinstance(words, str | bytes) or not isinstance(words, Iterable):
        raise ValidationError("keywords", words, "give a set of strings, such as {'sale'}")
    return frozenset([normalise_word(word) for word in words]) or _NONE
