"""What processes must have alike: words for each difference, and none where they agree."""

import pytest

from emais.terms import PASS_CODES, Terms, difference, unpacked

MINE = Terms(20, 5, "1 attached", 19, 1.25, 12)


def told(*terms):
    return [one.packed() for one in terms]


def test_those_that_agree():
    assert difference(MINE, 1, told(MINE, MINE, MINE)) is None
    assert max(abs(number) for number in Terms(2**40, 2**40, "x" * 99, 2**40, 1e30, PASS_CODES - 1).packed()) < 2**63


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 21}, "different steps: rank 0 observed step 21, rank 1 observed step 20"),
        ({"loaded": 6}, "loaded different states: rank 0 has loaded another one than rank 1, 2"),
        ({"attached": "2 attached"}, "attached their optimizers differently: rank 1 has 1 attached, and not so rank 0"),
        ({"began": 3}, "that of rank 0 after 3, that of rank 1 after 12, that of rank 2 after 12. Leave a loop"),
        ({"trained": 18}, "rank 1 came after 19 minibatches and had the factor 1.25, and not so that of rank 0"),
        ({"factor": 1.25 + 2**-52}, "made different optimizer steps: before step 20"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_each_difference_has_its_message(change, message):
    found = difference(MINE, 1, told(MINE._replace(**change), MINE, MINE))
    assert message in found


def test_a_state_that_some_have_not_loaded_is_compared_with_none():
    """One process may save its state and load it again."""
    nothing = MINE._replace(loaded=0)
    assert difference(nothing, 0, told(nothing, MINE, nothing)) is None
    assert "rank 1 has loaded another one than rank 2" in difference(
        nothing, 0, told(nothing, MINE, MINE._replace(loaded=6))
    )


def test_passes_that_began_long_ago():
    """Only the lowest bits travel: the number is told as long as a pass has fewer steps than these can count."""
    late, other = (Terms(5 * PASS_CODES + 7, began=5 * PASS_CODES - k) for k in (3, 4))
    assert unpacked(late.packed()[1])[3] == PASS_CODES - 3
    assert f"that of rank 0 after {late.began}, that of rank 1 after {other.began}" in difference(
        late, 0, told(late, other)
    )
