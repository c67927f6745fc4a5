"""The jobs of two papers as Faust apps, each with a recomputation of all its results.

Real jobs 1 to 4 are those of Madsen, Zhou and Cao, "Integrative Dynamic Reconfiguration in a Parallel Stream Processing
Engine" (2017), section 5; the page view counts are those of the L/F job scheduler (Electronics 2020, 9, 1857).
`python -m jobs` runs them on a sandbox, once balanced only and once with collocation, and prints the papers' figures
beside those measured.  Run with this folder's parent on PYTHONPATH.
"""
