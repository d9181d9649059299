import unittest
from fractions import Fraction

from kitchen import MILLILITRES, convert, table


class Convert(unittest.TestCase):
    def test_exact(self):
        for amount, source, target, want in [
            (3, "teaspoon", "tablespoon", 1),
            (1, "cup", "tablespoon", 16),
            (1, "teaspoon", "tablespoon", Fraction(1, 3)),
            (2, "litre", "cup", Fraction(25, 3)),
            (0, "cup", "litre", 0),
        ]:
            with self.subTest(amount=amount, source=source, target=target):
                self.assertEqual(convert(amount, source, target), want)

    def test_there_and_back(self):
        for source in MILLILITRES:
            for target in MILLILITRES:
                self.assertEqual(convert(convert(7, source, target), target, source), 7)

    def test_unknown_measure(self):
        with self.assertRaisesRegex(ValueError, "unknown measure 'pinch': use one of teaspoon"):
            convert(1, "pinch", "cup")


class Table(unittest.TestCase):
    def test_smallest_first(self):
        self.assertEqual(table().splitlines()[2], "| teaspoon | 5 |")
        self.assertEqual(table().splitlines()[-1], "| litre | 1000 |")
