"""Kitchen measures as exact millilitres."""

from fractions import Fraction

MILLILITRES = {
    "teaspoon": Fraction(5),
    "tablespoon": Fraction(15),
    "cup": Fraction(240),
    "litre": Fraction(1000),
}


def convert(amount, source, target):
    """Returns amount of source expressed in target, exactly."""
    for name in (source, target):
        if name not in MILLILITRES:
            raise ValueError(f"unknown measure {name!r}: use one of {', '.join(MILLILITRES)}")
    return Fraction(amount) * MILLILITRES[source] / MILLILITRES[target]


def table():
    """Returns the measures as a Markdown table, smallest first."""
    rows = ["| measure | millilitres |", "|---|---|"]
    for name, size in sorted(MILLILITRES.items(), key=lambda item: item[1]):
        rows.append(f"| {name} | {size} |")
    return "\n".join(rows)
