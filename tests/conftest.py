"""For all tests: how long an example takes says nothing, on a machine that others use too."""

from hypothesis import HealthCheck, settings

settings.register_profile("trimtab", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trimtab")
