"""What the city's shops sell: categories, brands, goods with their usual prices, and tags."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CATEGORIES", "TAGS", "Category"]


@dataclass(frozen=True)
class Category:
    """A kind of shop: how common it is, the chains in it, and what it sells at which price."""

    name: str
    weight: float
    brands: tuple[str, ...]
    goods: tuple[tuple[str, float], ...]


CATEGORIES = (
    Category(
        "coffee",
        16,
        ("Morgenrot", "Brew & Co", "Kafi", "Bean Street", "independent"),
        (("espresso", 4.2), ("latte", 5.6), ("cake", 6.5), ("beans", 14.0), ("brunch", 19.0)),
    ),
    Category(
        "bakery",
        12,
        ("Kornhaus", "Brotzeit", "Panino", "independent"),
        (("bread", 5.2), ("croissant", 2.4), ("pizza", 8.5), ("pie", 7.0), ("sandwich", 7.8)),
    ),
    Category(
        "restaurant",
        15,
        ("Sakura", "Trattoria Nonna", "Green Bowl", "Burger Yard", "independent"),
        (("lunch", 18.0), ("ramen", 17.5), ("burger", 16.0), ("curry", 19.5), ("dinner", 42.0)),
    ),
    Category(
        "grocery",
        13,
        ("Fresco", "Hofladen", "Primo", "Bio Markt"),
        (("fruit", 6.0), ("cheese", 9.0), ("wine", 15.0), ("pasta", 3.5), ("yoghurt", 2.8)),
    ),
    Category(
        "fashion",
        12,
        ("Nordlicht", "Cotton Club", "Lumi", "Faden", "independent"),
        (("jeans", 89.0), ("shirt", 39.0), ("coat", 199.0), ("dress", 119.0), ("hat", 35.0)),
    ),
    Category(
        "electronics",
        8,
        ("Huawei", "Volto", "Pixelhaus", "Ampere"),
        (("phone", 690.0), ("laptop", 1190.0), ("headphones", 149.0), ("camera", 560.0)),
    ),
    Category(
        "books",
        5,
        ("Leseratte", "Papier & Co", "independent"),
        (("novel", 21.0), ("comic", 16.0), ("cookbook", 34.0), ("atlas", 49.0)),
    ),
    Category(
        "sports",
        6,
        ("Gipfel", "Runfast", "Velo Werk"),
        (("shoes", 129.0), ("bike", 890.0), ("skis", 449.0), ("tent", 239.0), ("helmet", 79.0)),
    ),
    Category(
        "beauty",
        6,
        ("Rosenrot", "Glow", "independent"),
        (("haircut", 65.0), ("perfume", 84.0), ("massage", 110.0), ("soap", 9.0)),
    ),
    Category(
        "pharmacy",
        4,
        ("Vita", "Linden"),
        (("vitamins", 19.0), ("sunscreen", 17.0), ("toothpaste", 5.0), ("bandage", 8.0)),
    ),
    Category(
        "garden",
        3,
        ("Gartenzwerg", "Blatt"),
        (("flowers", 24.0), ("herbs", 6.0), ("grill", 329.0), ("chair", 119.0)),
    ),
    Category(
        "toys",
        3,
        ("Holzwurm", "Spielkiste"),
        (("puzzle", 19.0), ("blocks", 44.0), ("doll", 32.0), ("kite", 27.0)),
    ),
)

#: Words on an offer besides its category and its good, by falling frequency.
TAGS = (
    "new",
    "local",
    "organic",
    "vegan",
    "gift",
    "family",
    "student",
    "weekend",
    "limited",
    "handmade",
    "seasonal",
    "clearance",
)
