from trimtab_protocol.messages.rate_limit import RateLimit, RateLimits, is_told


def test_an_allowance_refills_with_time() -> None:
    rate_limit = RateLimit(rate=2, burst=3)

    assert [rate_limit.spend(10.0) for _ in range(4)] == [True, True, True, False]
    assert [rate_limit.spend(11.0), rate_limit.spend(11.0), rate_limit.spend(11.0)] == [True, True, False]


def test_who_asks_for_too_much_loses_nothing_by_asking() -> None:
    rate_limit = RateLimit(rate=1, burst=3)

    assert [rate_limit.spend(0.0, 2), *(rate_limit.spend(0.0, 9) for _ in range(100))] == [True] + [False] * 100
    assert rate_limit.spend(0.0)


def test_a_clock_that_is_set_back_shuts_nobody_out() -> None:
    rate_limit = RateLimit(rate=1, burst=2)

    assert [rate_limit.spend(1e9), rate_limit.spend(1.0), rate_limit.spend(1.0)] == [True, True, False]
    assert rate_limit.spend(2.0)


def test_each_sender_has_its_own_and_few_are_remembered() -> None:
    rate_limits = RateLimits(rate=0, burst=1, most=2)

    assert [rate_limits.spend(sender, 0.0) for sender in "aab"] == [True, False, True]
    assert [rate_limits.spend("a", 0.0), rate_limits.spend("c", 0.0), len(rate_limits)] == [False, True, 2]
    assert [rate_limits.spend("a", 0.0), rate_limits.spend("b", 0.0)] == [False, True]  # b was forgotten


def test_few_of_many_faults_are_told() -> None:
    assert [count for count in range(1, 3001) if is_told(count)] == [1, 10, 100, 1000, 2000, 3000]
