"""Makes epsilon.txt, for tests/unit/test_account.c: the epsilon of drawn runs by Google's dp-accounting.

    python3 -m venv venv && venv/bin/pip install dp-accounting==0.6.0
    venv/bin/python tests/golden/make_epsilon.py > tests/golden/epsilon.txt

Each line: sampling probability, noise multiplier, rounds, delta, epsilon. Some probabilities are 1, and some cases lie
at the ends of the sensible range."""

import logging
import math
import random

from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

CASES = 600


def epsilon(rate, multiplier, rounds, delta):
    event = dp_event.GaussianDpEvent(multiplier)
    if rate < 1:
        event = dp_event.PoissonSampledDpEvent(rate, event)
    accountant = RdpAccountant()  # uses the default orders
    accountant.compose(event, rounds)
    return accountant.get_epsilon(delta)


def main():
    # Hides messages about orders whose series does not converge, which it leaves out.
    logging.getLogger("absl").setLevel(logging.ERROR)
    draw = random.Random(28)
    for case in range(CASES):
        rate = 1 if case % 6 == 0 else 10**draw.uniform(-5, 0)
        multiplier = 10**draw.uniform(-0.5, 1.7)
        rounds = round(10**draw.uniform(0, 5.5))
        delta = 10**draw.uniform(-9, -2)
        value = epsilon(rate, multiplier, rounds, delta)
        if math.isfinite(value):
            print(repr(rate), repr(multiplier), rounds, repr(delta), repr(float(value)))


main()
