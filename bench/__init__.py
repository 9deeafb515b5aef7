"""How fast we are, as a share of the bare driver doing the same in the same run.

Bare means: our own statements, the same batch sizes and number of commits, driven by hand with the
raw driver. Ours and bare take turns, so that noise hits both; only ratios within one run count.
"""
