from trimtab_protocol.messages.allowance import Allowance, Allowances, is_told


def test_an_allowance_refills_with_time() -> None:
    allowance = Allowance(rate=2, burst=3)

    assert [allowance.spend(10.0) for _ in range(4)] == [True, True, True, False]
    assert [allowance.spend(11.0), allowance.spend(11.0), allowance.spend(11.0)] == [True, True, False]


def test_who_asks_for_too_much_loses_nothing_by_asking() -> None:
    allowance = Allowance(rate=1, burst=3)

    assert [allowance.spend(0.0, 2), *(allowance.spend(0.0, 9) for _ in range(100))] == [True] + [False] * 100
    assert allowance.spend(0.0)


def test_a_clock_that_is_set_back_shuts_nobody_out() -> None:
    allowance = Allowance(rate=1, burst=2)

    assert [allowance.spend(1e9), allowance.spend(1.0), allowance.spend(1.0)] == [True, True, False]
    assert allowance.spend(2.0)


def test_each_sender_has_its_own_and_few_are_remembered() -> None:
    allowances = Allowances(rate=0, burst=1, most=2)

    assert [allowances.spend(sender, 0.0) for sender in "aab"] == [True, False, True]
    assert [allowances.spend("a", 0.0), allowances.spend("c", 0.0), len(allowances)] == [False, True, 2]
    assert [allowances.spend("a", 0.0), allowances.spend("b", 0.0)] == [False, True]  # b was forgotten


def test_few_of_many_faults_are_told() -> None:
    assert [count for count in range(1, 3001) if is_told(count)] == [1, 10, 100, 1000, 2000, 3000]
